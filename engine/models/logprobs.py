"""Log-probabilities of given tokens from hidden states, without keeping the logits."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK_ROWS = 2048  # a chunk's logits stay in the cache of a CPU core where the vocabulary is small
CHUNK_LOGITS = 1 << 24  # and take no more than 64 MiB where it is large


class TokenLogProbs(NamedTuple):
    """All [rows]: the log-probability of each target, the entropy of its distribution, and
    whether the target is the likeliest token. Only the first carries a gradient."""

    logprobs: Tensor
    entropies: Tensor
    likeliest: Tensor


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        logprobs = torch.empty(len(targets), dtype=weight.dtype, device=weight.device)
        entropies = torch.empty_like(logprobs)
        likeliest = torch.empty_like(targets, dtype=torch.bool)
        for rows in row_chunks(len(targets), len(weight)):
            log_p = torch.log_softmax(scaled_logits(hidden[rows], weight, temperature), dim=-1)
            logprobs[rows] = log_p.gather(1, targets[rows, None])[:, 0]
            entropies[rows] = -torch.linalg.vecdot(torch.softmax(log_p, dim=-1), log_p)
            likeliest[rows] = logprobs[rows] == log_p.amax(dim=-1)
        ctx.save_for_backward(hidden, weight, targets)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies, likeliest)
        return logprobs, entropies, likeliest

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        hidden, weight, targets = ctx.saved_tensors
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for rows in row_chunks(len(targets), len(weight)):
            part = hidden[rows].to(weight.dtype)
            scale = grads[0][rows, None] / ctx.temperature
            logits = scaled_logits(part, weight, ctx.temperature)
            d_logits = torch.softmax(logits, dim=-1).mul_(-scale)
            d_logits.scatter_add_(1, targets[rows, None], scale)
            d_hidden[rows] = (d_logits @ weight).to(hidden.dtype)
            if d_weight is not None:
                d_weight.addmm_(d_logits.T, part)
        return d_hidden, d_weight, None, None


def row_chunks(rows: int, vocabulary: int) -> list[slice]:
    """Slices of the rows whose logits exist at once."""
    size = max(1, min(CHUNK_ROWS, CHUNK_LOGITS // vocabulary))
    return [slice(start, start + size) for start in range(0, rows, size)]


def scaled_logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """Logits [rows, vocab] over the temperature; hidden: [rows, width], weight: [vocab, width]."""
    logits = hidden.to(weight.dtype) @ weight.T
    return logits if temperature == 1.0 else logits.div_(temperature)


def token_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float = 1.0
) -> TokenLogProbs:
    """Log-probabilities of `targets` under the distributions of sampling at `temperature`.

    hidden: [rows, width]; weight: [vocab, width], the head, whose type the products have (fp32);
    targets: [rows]. Logits exist for a few rows at a time, and again in the backward pass.
    """
    return TokenLogProbs(
        *_TokenLogProbs.apply(hidden, weight, targets, temperature)  # type: ignore[no-untyped-call]
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """What a model computed for the tokens in the loss of one pass, shared rows once.

    hidden [rows, width]: after the final norm, of the token before each predicted one; targets
    [rows]: the predicted ids; index [N]: the row of each token in the loss, None where there is
    one row a token, in their order.
    """

    hidden: Tensor
    targets: Tensor
    index: Tensor | None = None

    def each(self, values: Tensor) -> Tensor:
        """[rows, ...] -> [N, ...]: for every token what its row has."""
        return values if self.index is None else values.index_select(0, self.index)

    def logprobs(self, weight: Tensor, temperature: float) -> TokenLogProbs:
        """Of the tokens in the loss, all [N]; weight: [vocab, width], the head."""
        found = token_logprobs(self.hidden, weight, self.targets, temperature)
        return TokenLogProbs(*(self.each(values) for values in found))
