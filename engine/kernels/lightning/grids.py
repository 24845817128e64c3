"""How chunks lie in a batch: what `chunked` reads, writes and scans, in tiles that fit a cache.

A piece is one chunk of one sequence. A tile is a range of chunks, read as [pieces, heads, chunk,
dim]. States are rows [rows, heads, dim, e]: first those that enter from outside (`roots`), then
one for each piece. In groups of `batch` rows, the state after a chunk follows the group `follows`.
`levels`, where they are not empty, are rows that follow from rows of earlier levels at once.
"""

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.lightning.packing import Level, Packing, Rows

TILE_BYTES = 1 << 19  # of one operand: the handful that are in use stay in a core's cache
LONGEST_CHUNK = 64  # in fp32, where longer ones spend more on products than they save on states
SMALL_STATE = 8192  # elements, below which the call costs more than what it computes


class Dense:
    """Rows [batch, heads, tokens, dim]; `lengths` [batch] are their true lengths."""

    levels: tuple[Level, ...] = ()

    def __init__(self, q: Tensor, lengths: Tensor | None) -> None:
        self.batch, heads, self.tokens, dim = q.shape
        longest = dim if q.dtype == torch.bfloat16 else min(dim, LONGEST_CHUNK)
        self.chunk = min(longest, self.tokens)
        self.chunks = -(-self.tokens // self.chunk)
        self.roots = self.batch
        self.follows = range(self.chunks)
        self.tiles = _tiles(q, self.chunks, self.batch * heads * self.chunk)
        steps = torch.arange(self.chunks, device=q.device)[:, None] * self.chunk
        self.live = None
        if lengths is None:
            sizes = (self.tokens - steps).clamp(max=self.chunk).expand(-1, self.batch)
        else:
            self.live = torch.arange(self.tokens, device=q.device) < lengths[:, None]
            sizes = (lengths - steps).clamp(0, self.chunk)
        self.sizes = sizes.flatten()

    def pieces(self, low: int, high: int) -> slice:
        """Pieces of the chunks low to high, which are also the rows of the states before them."""
        return slice(low * self.batch, high * self.batch)

    entering = pieces

    def read(self, x: Tensor, low: int, high: int) -> Tensor:
        end = min(high * self.chunk, self.tokens)
        part = x[:, :, low * self.chunk : end]
        if self.live is not None:
            part = torch.where(self.live[:, None, low * self.chunk : end, None], part, 0)
        if end < high * self.chunk:
            part = functional.pad(part, (0, 0, 0, high * self.chunk - end))
        part = part.view(*part.shape[:2], high - low, self.chunk, -1).permute(2, 0, 1, 3, 4)
        return part.contiguous().flatten(0, 1)

    def write(self, x: Tensor, tile: Tensor, low: int, high: int) -> None:
        tile = tile.view(high - low, self.batch, *tile.shape[1:]).permute(1, 2, 0, 3, 4)
        part = x[:, :, low * self.chunk : high * self.chunk]
        if high * self.chunk <= self.tokens:
            part.view(tile.shape).copy_(tile)
        else:
            part.copy_(tile.flatten(2, 3)[:, :, : part.shape[2]])

    def final(self) -> Rows:
        return self.pieces(self.chunks, self.chunks + 1)

    @property
    def ends(self) -> list[int]:
        """Groups of the final states."""
        return [self.chunks]


class Packed:
    """One row [1, heads, tokens, dim] that holds the nodes of a packing."""

    batch = 1

    def __init__(self, q: Tensor, pack: Packing) -> None:
        self.pack, self.chunk, self.sizes = pack, pack.chunk, pack.sizes
        self.chunks, self.roots = len(pack.sizes), len(pack.roots)
        self.follows = pack.follows
        small = q.shape[1] * q.shape[3] ** 2 < SMALL_STATE
        self.levels = pack.levels if small or q.device.type != "cpu" else ()
        self.tiles = _tiles(q, self.chunks, q.shape[1] * self.chunk)

    def pieces(self, low: int, high: int) -> slice:
        return slice(low, high)

    def entering(self, low: int, high: int) -> Rows:
        first, last = self.follows[low], self.follows[high - 1]
        if self.follows[low:high] == tuple(range(first, last + 1)):
            return slice(first, last + 1)
        return self.pack.before[low:high]

    def read(self, x: Tensor, low: int, high: int) -> Tensor:
        begin, end = self.pack.borders[low], self.pack.borders[high]
        if self._full(low, high):
            part = x[0, :, begin:end]
        else:
            slots = slice(low * self.chunk, high * self.chunk)
            part = x[0].index_select(1, self.pack.source[slots])
            part.masked_fill_(self.pack.gaps[slots, None], 0)
        part = part.view(len(part), high - low, self.chunk, -1)
        return part.transpose(0, 1).contiguous()

    def write(self, x: Tensor, tile: Tensor, low: int, high: int) -> None:
        begin, end = self.pack.borders[low], self.pack.borders[high]
        part, tile = x[0, :, begin:end], tile.transpose(0, 1)
        if self._full(low, high):
            part.view(tile.shape).copy_(tile)
        else:
            place = self.pack.place[begin:end] - low * self.chunk
            part.copy_(tile.flatten(1, 2).index_select(1, place))

    def final(self) -> Tensor:
        return self.pack.first[1:] - 1 + self.roots

    @property
    def ends(self) -> list[int]:
        groups: list[int] = self.final().tolist()
        return groups

    def _full(self, low: int, high: int) -> bool:
        """Whether the tile has no slot without a token, so that it is a slice of the tokens."""
        return self.pack.borders[high] - self.pack.borders[low] == (high - low) * self.chunk


def _tiles(q: Tensor, chunks: int, tokens_of_chunk: int) -> list[tuple[int, int]]:
    bytes_of_chunk = tokens_of_chunk * q.shape[-1] * q.element_size()
    width = max(1, TILE_BYTES // bytes_of_chunk) if q.device.type == "cpu" else chunks
    return [(low, min(low + width, chunks)) for low in range(0, chunks, width)]
