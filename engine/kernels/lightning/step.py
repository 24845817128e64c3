"""One token of lightning attention: what a decoding loop calls."""

import torch
from torch import Tensor


def lightning_step(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, state: Tensor, live: Tensor | None = None
) -> Tensor:
    """One token a row; q, k: [batch, heads, dim], v: [batch, heads, e]; updates `state` in place.

    state: [batch, heads, dim, e], fp32 or fp64. live [batch]: rows that are False keep their
    state. Returns the output [batch, heads, e] in the type of the state.
    Raises TypeError for a state in lower precision.
    """
    if state.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"state {list(state.shape)} is {state.dtype}: it must be fp32, or slow heads are lost"
        )
    batch, heads, dim, width = state.shape
    decay = torch.exp(-slopes.to(state.dtype)).view(heads, 1, 1)
    if q.dtype != state.dtype:
        q, k, v = (x.to(state.dtype) for x in (q, k, v))
    if live is not None:
        row = live.view(batch, 1, 1, 1)
        decay = torch.where(row, decay, 1.0)
        k = torch.where(row[..., 0], k, 0.0)
    state.mul_(decay).addcmul_(k.unsqueeze(-1), v.unsqueeze(2))
    read = torch.bmm(q.reshape(-1, 1, dim), state.view(-1, dim, width))
    return read.view(batch, heads, width)
