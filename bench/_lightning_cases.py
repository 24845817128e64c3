"""What the lightning benchmark compares: cases for exactness, and the peers' computations."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.lightning import (
    SlopeSchedule,
    chunked,
    head_slopes,
    lightning_attention,
    reference,
)

LENGTHS = (1, 63, 64, 65, 255, 257, 600, 913)
HEADS, DIM = 4, 16


@dataclass(frozen=True)
class Case:
    """Inputs of one call in fp64; `form` are its keyword arguments, `live` its true tokens."""

    q: Tensor
    k: Tensor
    v: Tensor
    state: Tensor
    form: dict[str, Any] = field(default_factory=dict)
    live: Tensor | None = None  # [batch, 1, tokens, 1]

    def results(
        self, attention: Callable[..., tuple[Tensor, Tensor]], dtype: torch.dtype
    ) -> list[Tensor]:
        """Output, final state, dq, dk, dv, dS_in, from gradients drawn with a fixed seed."""
        leaves = [
            x.to(dtype, copy=True).requires_grad_() for x in (self.q, self.k, self.v, self.state)
        ]
        q, k, v, state = leaves
        output, final = attention(q, k, v, slopes(HEADS), initial_state=state, **self.form)
        generator = torch.Generator().manual_seed(7)
        d_output, d_final = (
            torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (output, final)
        )
        if self.live is not None:
            d_output = torch.where(self.live, d_output, 0)
            output = torch.where(self.live, output, 0)
        loss = (output.double() * d_output).sum() + (final.double() * d_final).sum()
        return [output, final, *torch.autograd.grad(loss, leaves)]


def slopes(heads: int) -> Tensor:
    """Of the first layer of four: the fastest and the slowest heads are far apart."""
    return head_slopes(SlopeSchedule.MINIMAX, heads, 0, 4)


def cases() -> list[Case]:
    """Every length alone; all of them packed, as a tree, left-padded, and with tails of NaN."""
    found = [_case(1, tokens, 1) for tokens in LENGTHS]
    borders = torch.tensor([0, *LENGTHS]).cumsum(0)
    total, rows = int(borders[-1]), len(LENGTHS)
    found.append(_case(1, total, rows, cu_seqlens=borders))
    parents = torch.tensor([-1, 0, 0, 1, 3, 3, 2, 6])
    found.append(_case(1, total, rows, cu_seqlens=borders, parents=parents))
    lengths, longest = torch.tensor([913, 1, 600, 65]), 1000
    case = _case(4, longest, 4, lengths=lengths)
    live = (torch.arange(longest) < lengths[:, None])[:, None, :, None]
    q, k, v = (torch.where(live, x, torch.nan) for x in (case.q, case.k, case.v))
    found.append(replace(case, q=q, k=k, v=v, live=live))
    live = (torch.arange(longest) >= longest - lengths[:, None])[:, None, :, None]
    k, v = torch.where(live, case.k, 0), torch.where(live, case.v, 0)
    no_state = torch.zeros_like(case.state)
    found.append(Case(case.q, k, v, no_state, live=live))
    return found


def worst_error(dtype: torch.dtype, found: list[Case]) -> float:
    """Largest relative error of a head over all cases and results, against the fp64 recurrence."""
    worst = 0.0
    for case in found:
        expected = case.results(reference.lightning_attention, torch.float64)
        for a, e in zip(case.results(lightning_attention, dtype), expected, strict=True):
            a, e = (x.detach().double().transpose(0, 1).flatten(1) for x in (a, e))
            error = (a - e).norm(dim=1) / e.norm(dim=1).clamp(min=1e-300)
            worst = max(worst, float(error.nan_to_num(torch.inf).max()))
    return worst


def one_exponent_short(slopes: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """`chunked._decays` with the mistake of a published kernel: what a token sees of the state
    before its chunk is decayed once too little."""
    within, query, key, state = TRUE_DECAYS(slopes, *rest)
    return within, query * torch.exp(slopes)[:, None, None], key, state


TRUE_DECAYS = chunked._decays


def block_loop(q: Tensor, k: Tensor, v: Tensor, rate: Tensor, block: int) -> Tensor:
    """Lightning attention as transformers computes it: block after block, left to autograd.

    q, k, v: [batch, heads, tokens, dim], tokens a multiple of `block`; rate: [heads].
    """
    s = rate[:, None, None]
    index = torch.arange(1, block + 1)[:, None]
    query_decay, key_decay = torch.exp(-s * index), torch.exp(-s * (block - index))
    distance = index - index.T
    within = torch.where(distance >= 0, torch.exp(-s * distance.clamp(min=0)), 0.0)
    state = q.new_zeros(q.shape[0], q.shape[1], q.shape[3], v.shape[3])
    outputs = []
    for start in range(0, q.shape[2], block):
        own = slice(start, start + block)
        queries, keys, values = q[:, :, own], k[:, :, own], v[:, :, own]
        inside = (queries @ keys.transpose(-1, -2) * within) @ values
        outputs.append(inside + (queries * query_decay) @ state)
        state = state * torch.exp(-s * block) + (keys * key_decay).transpose(-1, -2) @ values
    return torch.cat(outputs, dim=2)


def softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def training(
    attention: Callable[[Tensor, Tensor, Tensor], Tensor],
    tokens: int,
    dim: int,
    dtype: torch.dtype = torch.float32,
) -> Callable[[], object]:
    """A call that goes forward and backward over one sequence with HEADS heads."""
    *qkv, d_output = (x.to(dtype) for x in _draw((1, HEADS, tokens, dim), 4))
    leaves = [x.requires_grad_() for x in qkv]
    return lambda: torch.autograd.grad(attention(*leaves), leaves, d_output)


def _case(batch: int, tokens: int, states: int, **form: Any) -> Case:
    q, k, v = _draw((batch, HEADS, tokens, DIM), 3)
    (state,) = _draw((states, HEADS, DIM, DIM), 1)
    return Case(q, k, v, state, form)


def _draw(shape: tuple[int, ...], tensors: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(shape))
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(tensors)]
