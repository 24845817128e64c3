"""Lightning attention in chunks: batched products inside, a short scan over the states between."""

from typing import Any

import torch
from torch import Tensor

from engine.kernels.lightning import arguments
from engine.kernels.lightning.grids import Dense, Packed
from engine.kernels.lightning.packing import Packing, Rows

Grid = Dense | Packed


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
    kept = arguments.state_type(q.dtype)
    grid = Dense(q, lengths) if pack is None else Packed(q, pack)
    if initial_state is None:
        initial_state = q.new_zeros(grid.roots, q.shape[1], q.shape[3], v.shape[3], dtype=kept)
    elif pack is not None and grid.roots < pack.nodes:
        initial_state = initial_state.index_select(0, pack.roots)
    decays = _decays(slopes.to(kept), grid.sizes, grid.chunk)
    return _Chunked.apply(q, k, v, initial_state, *decays, grid)  # type: ignore[no-untyped-call, no-any-return]


def _decays(slopes: Tensor, sizes: Tensor, chunk: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Powers of the decay; every exponent is <= 0, so that nothing overflows.

    sizes: [pieces] true tokens m of each chunk. Returns
    within [heads, chunk, chunk]: exp(-s (i-j)) for i >= j, else 0;
    query [heads, chunk, 1]: exp(-s (i+1)), from the incoming state to token i;
    key [pieces, heads, chunk, 1]: exp(-s (m-1-i)), from token i to the end of m true tokens;
    state [pieces, heads, 1, 1]: exp(-s m).
    """
    index = torch.arange(chunk, device=slopes.device, dtype=slopes.dtype)
    rate = slopes[:, None, None]
    distance = index[:, None] - index
    within = torch.where(distance >= 0, torch.exp(-rate * distance.clamp(min=0)), 0.0)
    query = torch.exp(-rate * (index + 1)[:, None])
    m = sizes.to(slopes.dtype)[:, None, None, None]
    key = torch.exp(-rate * (m - 1 - index[:, None]).clamp(min=0))
    return within, query, key, torch.exp(-rate * m)


class _Chunked(torch.autograd.Function):
    """Saves q, k, v and the states at chunk borders; the scores are computed again.

    Work goes tile by tile, so that what a tile needs stays in the cache, and no temporary is large
    enough to be handed back to the operating system and faulted in again.
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
        grid: Grid,
    ) -> tuple[Tensor, Tensor]:
        within, query, key = within.to(q.dtype), query.to(q.dtype), key.to(q.dtype)
        states = initial.new_empty(grid.roots + len(grid.sizes), *initial.shape[1:])
        states[: grid.roots] = initial
        after = states[grid.roots :]
        for low, high in grid.tiles:
            own = grid.pieces(low, high)
            keys = grid.read(k, low, high) * key[own]
            _product_into(after[own], keys.transpose(-1, -2), grid.read(v, low, high))
        decay = torch.cat([decay.new_ones(grid.roots, *decay.shape[1:]), decay])  # a row each
        for rows, before in grid.levels:
            _carry(states, before, rows, decay[rows])
        output = torch.empty_like(v)
        for low, high in grid.tiles:
            queries, values = grid.read(q, low, high), grid.read(v, low, high)
            scores = _product(queries, grid.read(k, low, high).transpose(-1, -2)).mul_(within)
            entering = states[grid.entering(low, high)].to(q.dtype)
            grid.write(output, _products(scores, values, queries * query, entering), low, high)
        ctx.save_for_backward(q, k, v, states, within, query, key, decay)
        ctx.grid = grid
        ctx.set_materialize_grads(False)
        return output, states[grid.final()].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, states, within, query, key, decay = ctx.saved_tensors
        grid: Grid = ctx.grid
        d_output, d_final = grads
        d_states = torch.zeros_like(states)  # of the state in each row
        if d_final is not None:
            d_states[grid.final()] = d_final
        if d_output is None:
            d_output = torch.zeros_like(v)
        for low, high in grid.tiles:
            asked = grid.read(d_output, low, high) * query
            queries = grid.read(q, low, high).transpose(-1, -2)
            rows = grid.entering(low, high)
            if isinstance(rows, slice):  # no two chunks follow the same one
                _product_into(d_states[rows], queries, asked)
            else:
                d_states.index_add_(0, rows, _product(queries, asked).to(d_states.dtype))
        for rows, before in reversed(grid.levels):
            _carry(d_states, rows, before, decay[rows])
        d_after = d_states[grid.roots :]
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for low, high in grid.tiles:
            own = grid.pieces(low, high)
            queries, keys, values, d_out = (grid.read(x, low, high) for x in (q, k, v, d_output))
            entering = states[grid.entering(low, high)].to(q.dtype)
            leaving = d_after[own].to(q.dtype)
            scores = _product(queries, keys.transpose(-1, -2)).mul_(within)
            d_scores = _product(d_out, values.transpose(-1, -2)).mul_(within)
            asked = d_out * query
            grid.write(d_q, _products(d_scores, keys, asked, entering.transpose(-1, -2)), low, high)
            told = values * key[own]
            d_scores = d_scores.transpose(-1, -2)
            grid.write(
                d_k, _products(d_scores, queries, told, leaving.transpose(-1, -2)), low, high
            )
            told = keys * key[own]
            grid.write(d_v, _products(scores.transpose(-1, -2), d_out, told, leaving), low, high)
        return d_q, d_k, d_v, d_states[: grid.roots], None, None, None, None, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b of [pieces, heads, ...] tiles."""
    return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).view(*a.shape[:-1], -1)


def _products(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """a @ b + c @ d of [pieces, heads, ...] tiles."""
    total = torch.bmm(a.flatten(0, 1), b.flatten(0, 1))
    total.baddbmm_(c.flatten(0, 1), d.flatten(0, 1))
    return total.view(*a.shape[:-1], -1)


def _product_into(target: Tensor, a: Tensor, b: Tensor) -> None:
    if target.dtype == a.dtype:
        torch.bmm(a.flatten(0, 1), b.flatten(0, 1), out=target.flatten(0, 1))
    else:
        target.copy_(_product(a, b))


def _carry(states: Tensor, source: Rows, target: Rows, decay: Tensor) -> None:
    """Add to the rows `target` the rows `source`, decayed."""
    if isinstance(target, slice):
        states[target].addcmul_(decay, states[source])
    else:
        states.index_add_(0, target, states[source].mul_(decay))
