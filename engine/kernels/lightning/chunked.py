"""Lightning attention in chunks: batched products inside, a short scan over the states between."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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

    Work goes tile by tile, so that what a tile needs stays in the cache from the first product to
    the last. Only small states are scanned over all tiles at once, level by level.
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

        def update(keys: Tensor, values: Tensor, own: slice) -> None:
            _product_into(after[own], (keys * key[own]).transpose(-1, -2), values)

        if grid.levels:
            for low, high in grid.tiles:
                update(grid.read(k, low, high), grid.read(v, low, high), grid.pieces(low, high))
            for rows, before in grid.levels:
                _add_rows(states, rows, _rows(states, before).mul_(decay[rows - grid.roots]))
        output = torch.empty_like(v)
        groups, decays = _groups(states, grid), _groups(decay, grid)
        for low, high in grid.tiles:
            queries, keys, values = (grid.read(x, low, high) for x in (q, k, v))
            if not grid.levels:
                update(keys, values, grid.pieces(low, high))
                for chunk in range(low, high):
                    state = groups[chunk - grid.chunks]
                    state.addcmul_(decays[chunk], groups[grid.follows[chunk]])
            scores = _product(queries, keys.transpose(-1, -2)).mul_(within)
            entering = _rows(states, grid.entering(low, high)).to(q.dtype)
            grid.write(output, _products(scores, values, queries * query, entering), low, high)
        ctx.save_for_backward(q, k, v, states, within, query, key, decay)
        ctx.grid = grid
        ctx.set_materialize_grads(False)
        return output, states[grid.final()].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, states, within, query, key, decay = ctx.saved_tensors
        grid: Grid = ctx.grid
        d_output, d_final = grads
        d_output = torch.zeros_like(v) if d_output is None else d_output
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

        def reads(queries: Tensor, asked: Tensor) -> Tensor:
            """Gradient of the states before chunks, of what is read from them there."""
            return _product(queries.transpose(-1, -2), asked).to(states.dtype)

        scan: _Levels | _Chain
        if grid.levels:
            scan = _Levels(states, d_final, decay, grid)
            for low, high in grid.tiles:
                asked = grid.read(d_output, low, high) * query
                scan.add(reads(grid.read(q, low, high), asked), low, high)
            scan.run()
        else:
            scan = _Chain(d_final, decay, grid)
        for low, high in reversed(grid.tiles):
            own = grid.pieces(low, high)
            queries, keys, values, d_out = (grid.read(x, low, high) for x in (q, k, v, d_output))
            asked = d_out * query
            if isinstance(scan, _Chain):
                scan.add(reads(queries, asked), low, high)
            leaving = scan.leaving(low, high).to(q.dtype)
            entering = _rows(states, grid.entering(low, high)).to(q.dtype)
            scores = _product(queries, keys.transpose(-1, -2)).mul_(within)
            tile = _products(scores.transpose(-1, -2), d_out, keys * key[own], leaving)
            grid.write(d_v, tile, low, high)
            d_scores = _product(d_out, values.transpose(-1, -2)).mul_(within)
            tile = _products(d_scores, keys, asked, entering.transpose(-1, -2))
            grid.write(d_q, tile, low, high)
            told = values * key[own]
            tile = _products(d_scores.transpose(-1, -2), queries, told, leaving.transpose(-1, -2))
            grid.write(d_k, tile, low, high)
        return d_q, d_k, d_v, scan.initial(), None, None, None, None, None


class _Levels:
    """The backward scan over all states at once: a row for each gradient."""

    def __init__(self, states: Tensor, d_final: Tensor | None, decay: Tensor, grid: Grid) -> None:
        self.rows, self.decay, self.grid = torch.zeros_like(states), decay, grid
        if d_final is not None:
            self.rows[grid.final()] = d_final

    def add(self, reads: Tensor, low: int, high: int) -> None:
        _add_rows(self.rows, self.grid.entering(low, high), reads)

    def run(self) -> None:
        for rows, before in reversed(self.grid.levels):
            decayed = _rows(self.rows, rows).mul_(self.decay[rows - self.grid.roots])
            _add_rows(self.rows, before, decayed)

    def leaving(self, low: int, high: int) -> Tensor:
        """Gradient of the states after the chunks low to high."""
        return self.rows[self.grid.roots :][self.grid.pieces(low, high)]

    def initial(self) -> Tensor:
        return self.rows[: self.grid.roots]


class _Chain:
    """The backward scan chunk by chunk: holds the gradients of states that are still to be used.

    `groups` are gradients of groups of `batch` rows, None where nothing has come yet.
    """

    def __init__(self, d_final: Tensor | None, decay: Tensor, grid: Grid) -> None:
        self.grid, self.decays = grid, _groups(decay, grid)
        self.groups: list[Tensor | None] = [None] * (grid.roots // grid.batch + grid.chunks)
        if d_final is not None:
            for group, gradient in zip(grid.ends, _groups(d_final.contiguous(), grid), strict=True):
                self.groups[group] = gradient

    def add(self, reads: Tensor, low: int, high: int) -> None:
        """Follow the chunks high to low; `reads` is consumed."""
        self.tile: list[Tensor] = []
        for chunk, state in zip(
            reversed(range(low, high)), reversed(_groups(reads, self.grid)), strict=True
        ):
            after = self.groups[chunk - self.grid.chunks]
            self.groups[chunk - self.grid.chunks] = None
            if after is None:
                after = torch.zeros_like(state)
            self.tile.append(after)
            state.addcmul_(self.decays[chunk], after)
            before = self.grid.follows[chunk]
            other = self.groups[before]
            self.groups[before] = state if other is None else other + state

    def leaving(self, low: int, high: int) -> Tensor:
        """Gradient of the states after the chunks low to high, which were added last."""
        return torch.cat(self.tile[::-1])

    def initial(self) -> Tensor:
        return torch.cat([group for group in self.groups if group is not None])


def _groups(rows: Tensor, grid: Grid) -> tuple[Tensor, ...]:
    """Rows of states (or decays) in groups of `batch`."""
    return rows.view(-1, grid.batch, *rows.shape[1:]).unbind()


def _rows(states: Tensor, rows: Rows) -> Tensor:
    return states[rows] if isinstance(rows, slice) else states.index_select(0, rows)


def _add_rows(states: Tensor, rows: Rows, tile: Tensor) -> None:
    if isinstance(rows, slice):
        states[rows] += tile
    else:
        states.index_add_(0, rows, tile)


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
