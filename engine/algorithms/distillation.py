"""How far a student's next-token distribution is from a teacher's, without keeping the logits.

On-policy distillation (GKD, 2306.13649) takes the divergence at each token that the student
sampled. `divergence` takes it over the whole vocabulary,
`one_token_advantages` estimates the reverse KL from the token that was sampled. With several
teachers the loss is a weighted sum of the divergences to each, not to their mixture.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.models.logprobs import row_chunks, scaled_logits

# Of log-probabilities: what a teacher thinks impossible then costs much instead of infinitely much.
FLOOR = -100.0


class Divergence(NamedTuple):
    """All [rows]; the first alone carries a gradient, to the student.

    values: the divergence; agree: whether both have the same likeliest token; entropy_gap: entropy
    of the student minus the teacher's.
    """

    values: Tensor
    agree: Tensor
    entropy_gap: Tensor


def divergence(
    hidden: Tensor,
    head: Tensor,
    teacher_hidden: Tensor,
    teacher_head: Tensor,
    *,
    beta: float = 1.0,
    temperature: float = 1.0,
) -> Divergence:
    """The generalised Jensen-Shannon divergence of student q and teacher p at each row.

    beta KL(p || m) + (1 - beta) KL(q || m) with m = beta p + (1 - beta) q; at its ends, where that
    is zero, the KL itself: beta 1 is the reverse KL(q || p), beta 0 the forward KL(p || q), as
    `beta` of TRL's DistillationTrainer. Both distributions are taken at `temperature`.

    hidden [rows, width], head [vocab, width]: the student's, the latter in the type of products;
    teacher_hidden [rows, its width], teacher_head [vocab, its width]: constants. Logits exist for
    a few rows at a time, and again in the backward pass.

    Raises ValueError where the shapes do not fit or beta is outside [0, 1].
    """
    if len(head) != len(teacher_head):
        raise ValueError(
            f"The student knows {len(head)} tokens and the teacher {len(teacher_head)}: their "
            "distributions can only be compared over one vocabulary."
        )
    if len(hidden) != len(teacher_hidden):
        raise ValueError(
            f"hidden has {len(hidden)} rows and teacher_hidden {len(teacher_hidden)}: one of each "
            "is expected for every token."
        )
    if not 0 <= beta <= 1:
        raise ValueError(f"beta is {beta:g}; it lies between 0 (forward KL) and 1 (reverse KL).")
    return Divergence(
        *_Divergence.apply(  # type: ignore[no-untyped-call]
            hidden, head, teacher_hidden.detach(), teacher_head.detach(), beta, temperature
        )
    )


def one_token_advantages(logprobs: Tensor, teacher: Tensor) -> Tensor:
    """sg[log p - log q] of the sampled tokens, all [tokens]: on average over samples of the student
    minus the reverse KL (MOPD, report of MiMo-V2-Flash)."""
    return teacher.detach().clamp(min=FLOOR) - logprobs.detach()


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        teacher_hidden: Tensor,
        teacher_head: Tensor,
        beta: float,
        temperature: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        values = torch.empty(len(hidden), dtype=head.dtype, device=head.device)
        gap = torch.empty_like(values)
        agree = torch.empty_like(values, dtype=torch.bool)
        for rows in row_chunks(len(hidden), len(head)):
            log_q = _log_softmax(hidden[rows], head, temperature)
            log_p = _log_softmax(teacher_hidden[rows], teacher_head, temperature).to(log_q.dtype)
            q, p = log_q.exp(), log_p.exp()
            if beta == 1:
                values[rows] = torch.linalg.vecdot(q, log_q - log_p)
            elif beta == 0:
                values[rows] = torch.linalg.vecdot(p, log_p - log_q)
            else:
                log_m = (beta * p + (1 - beta) * q).log().clamp_(min=FLOOR)
                values[rows] = beta * torch.linalg.vecdot(p, log_p - log_m)
                values[rows] += (1 - beta) * torch.linalg.vecdot(q, log_q - log_m)
            agree[rows] = log_q.argmax(dim=-1) == log_p.argmax(dim=-1)
            gap[rows] = torch.linalg.vecdot(p, log_p) - torch.linalg.vecdot(q, log_q)
        ctx.save_for_backward(hidden, head, teacher_hidden, teacher_head)
        ctx.beta, ctx.temperature = beta, temperature
        ctx.mark_non_differentiable(agree, gap)
        return values, agree, gap

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, head, teacher_hidden, teacher_head = ctx.saved_tensors
        beta, temperature = ctx.beta, ctx.temperature
        d_hidden = torch.empty_like(hidden)
        d_head = torch.zeros_like(head) if ctx.needs_input_grad[1] else None  # frozen: adapters
        for rows in row_chunks(len(hidden), len(head)):
            part = hidden[rows].to(head.dtype)
            log_q = _log_softmax(part, head, temperature)
            log_p = _log_softmax(teacher_hidden[rows], teacher_head, temperature).to(log_q.dtype)
            q = log_q.exp()
            if beta == 0:
                d_logits = q - log_p.exp()
            else:  # through the softmax: q (s - sum q s), where s is the score of each token
                score = log_q - log_p
                if beta != 1:
                    log_m = (beta * log_p.exp() + (1 - beta) * q).log().clamp_(min=FLOOR)
                    score = (1 - beta) * (log_q - log_m)
                d_logits = q * (score - torch.linalg.vecdot(q, score)[:, None])
            d_logits *= grads[0][rows, None] / temperature
            d_hidden[rows] = (d_logits @ head).to(hidden.dtype)
            if d_head is not None:
                d_head.addmm_(d_logits.T, part)
        return d_hidden, d_head, None, None, None, None


def _log_softmax(hidden: Tensor, head: Tensor, temperature: float) -> Tensor:
    logits = scaled_logits(hidden, head, temperature)
    return torch.log_softmax(logits, dim=-1).clamp_(min=FLOOR)
