"""Lightning attention in chunks: batched products inside, a short scan over the states between."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.lightning import arguments
from engine.kernels.lightning.packing import Packing


def lightning_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    *,
    initial_state: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    parents: Tensor | None = None,
    packing: Packing | None = None,
) -> tuple[Tensor, Tensor]:
    """`operation.lightning_attention` in plain torch, in the precision of q, k, v.

    Chunk length of the dense form = head dim, at which the two kinds of product cost the same.
    """
    pack = arguments.check(q, k, v, slopes, initial_state, lengths, cu_seqlens, parents, packing)
    batch, heads, _, dim = q.shape
    kept = arguments.state_type(q.dtype)
    rows = batch if pack is None else len(pack.roots)
    if initial_state is None:
        initial_state = q.new_zeros(rows, heads, dim, v.shape[-1], dtype=kept)
    elif pack is not None and rows < pack.nodes:
        initial_state = initial_state.index_select(0, pack.roots)
    if pack is None:
        return _dense(q, k, v, slopes.to(kept), initial_state, lengths)
    return _packed(q, k, v, slopes.to(kept), initial_state, pack)


def _dense(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    batch, heads, tokens, dim = q.shape
    if lengths is not None:
        live = (torch.arange(tokens, device=q.device) < lengths[:, None])[:, None, :, None]
        q, k, v = (torch.where(live, x, 0) for x in (q, k, v))
    chunk = min(dim, tokens)
    chunks = -(-tokens // chunk)
    pad = chunks * chunk - tokens
    if pad:
        q, k, v = (functional.pad(x, (0, 0, 0, pad)) for x in (q, k, v))
    q, k, v = (x.reshape(batch, heads, chunks, chunk, x.shape[-1]) for x in (q, k, v))
    true_lengths = torch.full((1,), tokens, device=q.device) if lengths is None else lengths
    starts = torch.arange(chunks, device=q.device) * chunk
    sizes = (true_lengths[:, None] - starts).clamp(0, chunk)
    output, states = _Chunked.apply(  # type: ignore[no-untyped-call]
        q, k, v, state[:, :, None], *_decays(slopes, sizes, chunk), None
    )
    return output.reshape(batch, heads, chunks * chunk, -1)[:, :, :tokens], states[:, :, 0]


def _packed(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, state: Tensor, pack: Packing
) -> tuple[Tensor, Tensor]:
    heads = q.shape[1]
    q, k, v = (_Gather.apply(x, pack) for x in (q, k, v))  # type: ignore[no-untyped-call]
    state = state.transpose(0, 1)[None]  # [1, heads, roots, dim, e]: states beside the chunks
    output, states = _Chunked.apply(  # type: ignore[no-untyped-call]
        q, k, v, state, *_decays(slopes, pack.sizes[None], pack.chunk), pack
    )
    output = output.reshape(1, heads, -1, output.shape[-1])
    if not pack.straight:
        output = output.index_select(2, pack.place)
    return output, states[0].transpose(0, 1)


class _Gather(torch.autograd.Function):
    """Tokens into the slots of their chunks; slots without a token are zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pack: Packing) -> Tensor:
        ctx.pack = pack
        if not pack.straight:
            x = x.index_select(2, pack.source).index_fill_(2, pack.gaps, 0)
        return x.reshape(1, x.shape[1], -1, pack.chunk, x.shape[-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        grad = grad.reshape(1, grad.shape[1], -1, grad.shape[-1])
        return grad if ctx.pack.straight else grad.index_select(2, ctx.pack.place), None


def _decays(slopes: Tensor, sizes: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Powers of the decay; every exponent is <= 0, so that nothing overflows.

    sizes: [b, chunks] true tokens m of each chunk, with b either the batch or 1. Returns
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
    m = sizes.to(slopes.dtype)[:, None, :, None, None]
    key = torch.exp(-rate * (m - 1 - index[:, None]).clamp(min=0))
    return within, query, key, torch.exp(-rate * m)


def _scan(
    updates: Tensor, decay: Tensor, initial: Tensor, pack: Packing | None
) -> tuple[Tensor, Tensor]:
    """States before every chunk and the final ones; `updates` [b, heads, chunks, ...] is consumed.

    A state after a chunk is decay times the one before it plus the chunk's update.
    """
    after = updates.to(initial.dtype)
    levels = [(c, c + 1) for c in range(after.shape[2])] if pack is None else pack.levels
    for low, high in levels:
        if low == 0:
            state = initial
        elif pack is None:
            state = after[:, :, low - 1 : low]
        else:
            state = after.index_select(2, pack.before[low:high])
        after[:, :, low:high].addcmul_(decay[:, :, low:high], state)
    if pack is None:
        return torch.cat([initial, after[:, :, :-1]], dim=2), after[:, :, -1:].clone()
    roots = initial.shape[2]
    before = torch.cat([initial, after.index_select(2, pack.before[roots:])], dim=2)
    return before, after.index_select(2, pack.ends)


def _scan_back(
    reads: Tensor, decay: Tensor, d_final: Tensor | None, pack: Packing | None
) -> tuple[Tensor, Tensor]:
    """Gradients of the state after every chunk and of the initial ones; `reads` is consumed.

    reads [b, heads, chunks, ...]: gradient of the state before a chunk, of what reads it there.
    """
    before = reads.to(decay.dtype)
    if pack is None:
        last = torch.zeros_like(before[:, :, :1]) if d_final is None else d_final
        state = last
        for c in reversed(range(before.shape[2])):
            state = before[:, :, c : c + 1].addcmul_(decay[:, :, c : c + 1], state)
        return torch.cat([before[:, :, 1:], last], dim=2), before[:, :, :1]
    after = torch.zeros_like(before)
    if d_final is not None:
        after.index_copy_(2, pack.ends, d_final)
    for low, high in reversed(pack.levels):
        level = before[:, :, low:high].addcmul_(decay[:, :, low:high], after[:, :, low:high])
        if low > 0:
            after.index_add_(2, pack.before[low:high], level)
    return after, before[:, :, : len(pack.roots)]


class _Chunked(torch.autograd.Function):
    """Saves q, k, v and the states at chunk borders; the scores are computed again.

    q, k: [b, heads, chunks, chunk, dim], v: [..., e], initial: [b, heads, roots, dim, e] with
    roots = 1 in the dense form; final states likewise, with a row for every node.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        initial: Tensor,
        within: Tensor,
        query: Tensor,
        key: Tensor,
        decay: Tensor,
        pack: Packing | None,
    ) -> tuple[Tensor, Tensor]:
        updates = (k * key.to(k.dtype)).transpose(-1, -2) @ v
        states, final = _scan(updates, decay, initial, pack)
        scores = (q @ k.transpose(-1, -2)).mul_(within.to(q.dtype))
        output = scores @ v
        output += (q * query.to(q.dtype)) @ states.to(q.dtype)
        ctx.save_for_backward(q, k, v, states, within, query, key, decay)
        ctx.pack = pack
        ctx.set_materialize_grads(False)
        return output, final

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, states, within, query, key, decay = ctx.saved_tensors
        within, query, key = within.to(q.dtype), query.to(q.dtype), key.to(q.dtype)
        d_output, d_final = grads
        if d_output is None:
            d_output = torch.zeros_like(v)
        reads = (q * query).transpose(-1, -2) @ d_output
        d_states, d_initial = _scan_back(reads, decay, d_final, ctx.pack)
        d_after = d_states.to(q.dtype)
        scores = (q @ k.transpose(-1, -2)).mul_(within)
        d_scores = (d_output @ v.transpose(-1, -2)).mul_(within)
        d_q = d_scores @ k
        d_q += (d_output @ states.to(q.dtype).transpose(-1, -2)).mul_(query)
        d_k = d_scores.transpose(-1, -2) @ q
        d_k += (v @ d_after.transpose(-1, -2)).mul_(key)
        d_v = scores.transpose(-1, -2) @ d_output
        d_v += (k @ d_after).mul_(key)
        return d_q, d_k, d_v, d_initial, None, None, None, None, None
