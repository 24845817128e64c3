"""Lightning attention in chunks: batched products inside, a short scan over the states between."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def lightning_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    *,
    initial_state: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Same contract as `reference.lightning_attention`, in the precision of q, k, v.

    q, k, v: [batch, heads, tokens, dim] in fp64, fp32 or bf16; slopes: [heads], fp32;
    initial_state: [batch, heads, dim, dim], fp32 (fp64 beside fp64 inputs).
    Returns the output in the type of q and the final state in fp32 (fp64). What stands past
    `lengths` is never read into a product, so that it may be anything, NaN included.
    Chunk length = head dim, at which the two kinds of product cost the same.
    """
    batch, heads, tokens, dim = q.shape
    state_type = torch.float64 if q.dtype == torch.float64 else torch.float32
    if initial_state is None:
        initial_state = q.new_zeros(batch, heads, dim, dim, dtype=state_type)
    elif initial_state.dtype != state_type:
        raise TypeError(
            f"initial_state is {initial_state.dtype}; beside {q.dtype} inputs it must be "
            f"{state_type}: slow heads are lost in lower precision"
        )
    if lengths is not None:
        live = (torch.arange(tokens, device=q.device) < lengths[:, None])[:, None, :, None]
        q, k, v = (torch.where(live, x, 0) for x in (q, k, v))
    chunk = min(dim, tokens)
    chunks = -(-tokens // chunk)
    pad = chunks * chunk - tokens
    if pad:
        q, k, v = (functional.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
    shape = (batch, heads, chunks, chunk, dim)
    true_lengths = torch.full((1,), tokens, device=q.device) if lengths is None else lengths
    decays = _decays(slopes.to(state_type), true_lengths, chunk, chunks)
    output, state = _Chunked.apply(  # type: ignore[no-untyped-call]
        q.reshape(shape), k.reshape(shape), v.reshape(shape), initial_state, *decays
    )
    return output.reshape(batch, heads, chunks * chunk, dim)[:, :, :tokens], state


def lightning_step(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, state: Tensor, live: Tensor | None = None
) -> Tensor:
    """One token a row; q, k, v: [batch, heads, dim]. Updates `state` in place, returns the output.

    live [batch]: rows that are False keep their state.
    """
    batch, heads, dim = q.shape
    decay = torch.exp(-slopes)[:, None, None]
    q, k, v = (x.to(state.dtype) for x in (q, k, v))
    if live is not None:
        row = live[:, None, None]
        decay = torch.where(row[..., None], decay, 1.0)
        k = torch.where(row, k, 0.0)
    state.mul_(decay)
    flat = state.view(batch * heads, dim, dim)
    flat.baddbmm_(k.reshape(-1, dim, 1), v.reshape(-1, 1, dim))
    return torch.bmm(q.reshape(-1, 1, dim), flat).view(batch, heads, dim)


def _decays(
    slopes: Tensor, lengths: Tensor, chunk: int, chunks: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Powers of the decay; every exponent is <= 0, so that nothing overflows.

    Returns, with b either the batch or 1:
    within [heads, 1, chunk, chunk]: exp(-s (i-j)) for i >= j, else 0;
    query [heads, 1, chunk, 1]: exp(-s (i+1)), from the incoming state to token i;
    key [b, heads, chunks, chunk, 1]: exp(-s (m-1-i)), from token i to the end of m true tokens;
    state [b, heads, chunks, 1, 1]: exp(-s m).
    """
    index = torch.arange(chunk, device=slopes.device, dtype=slopes.dtype)
    rate = slopes[:, None, None, None]
    distance = index[:, None] - index
    within = torch.where(distance >= 0, torch.exp(-rate * distance.clamp(min=0)), 0.0)
    query = torch.exp(-rate * (index + 1)[:, None])
    starts = torch.arange(chunks, device=slopes.device) * chunk
    m = (lengths[:, None] - starts).clamp(0, chunk).to(slopes.dtype)[:, None, :, None, None]
    key = torch.exp(-rate * (m - 1 - index[:, None]).clamp(min=0))
    return within, query, key, torch.exp(-rate * m)


class _Chunked(torch.autograd.Function):
    """Saves q, k, v and the states at chunk borders; the scores are computed again."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        initial_state: Tensor,
        within: Tensor,
        query: Tensor,
        key: Tensor,
        state_decay: Tensor,
    ) -> tuple[Tensor, Tensor]:
        updates = (k * key.to(k.dtype)).transpose(-1, -2) @ v
        states = torch.empty_like(updates, dtype=initial_state.dtype)
        state = initial_state
        for c in range(updates.shape[2]):
            states[:, :, c] = state
            state = state_decay[:, :, c] * state + updates[:, :, c]
        scores = (q @ k.transpose(-1, -2)).mul_(within.to(q.dtype))
        output = scores @ v
        output += (q * query.to(q.dtype)) @ states.to(q.dtype)
        ctx.save_for_backward(q, k, v, states, within, query, key, state_decay)
        return output, state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d_output, d_state = grads
        q, k, v, states, within, query, key, state_decay = ctx.saved_tensors
        within, query, key = within.to(q.dtype), query.to(q.dtype), key.to(q.dtype)

        from_state = (q * query).transpose(-1, -2) @ d_output
        d_states = torch.empty_like(states)  # gradient of the state after each chunk
        for c in reversed(range(states.shape[2])):
            d_states[:, :, c] = d_state
            d_state = state_decay[:, :, c] * d_state + from_state[:, :, c]
        d_after = d_states.to(q.dtype)

        scores = (q @ k.transpose(-1, -2)).mul_(within)
        d_scores = (d_output @ v.transpose(-1, -2)).mul_(within)
        d_q = d_scores @ k
        d_q += (d_output @ states.to(q.dtype).transpose(-1, -2)).mul_(query)
        d_k = d_scores.transpose(-1, -2) @ q
        d_k += (v @ d_after.transpose(-1, -2)).mul_(key)
        d_v = scores.transpose(-1, -2) @ d_output
        d_v += (k @ d_after).mul_(key)
        return d_q, d_k, d_v, d_state, None, None, None, None
