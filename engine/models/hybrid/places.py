"""Where the tokens of a forward pass stand: in slots of a cache, or on branches of prefix trees."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from engine.kernels.lightning import Packing, packing
from engine.kernels.tree import TreeLayout


class Span:
    """Which tokens of which slots a forward pass covers.

    slots: rows of the cache, a slice where they are neighbours (then nothing is copied);
    start [batch]: tokens that a slot holds already; lengths [batch]: true new tokens of each row;
    context: longest start + length; fresh: every row starts with its first token.
    """

    def __init__(self, slots: slice | Tensor, start: Tensor, lengths: Tensor) -> None:
        self.slots = slots
        self.start = start
        self.lengths = lengths
        self.context = int((start + lengths).max())
        self.fresh = not start.any()


@dataclass(frozen=True)
class Branches:
    """A layout of prefix trees, with what layers compute from it once a batch.

    chunk: of lightning attention; lags: how far back the convolution reads.
    """

    layout: TreeLayout
    chunk: int
    lags: int

    @cached_property
    def packing(self) -> Packing:
        return packing(self.layout.cu_seqlens, self.layout.parents, chunk=self.chunk)

    @cached_property
    def seams(self) -> tuple[Tensor, list[Tensor]]:
        """The first `lags` tokens of each node; for each lag the token so many places before them.

        In their own sequence, -1 where there is none.
        """
        cu_seqlens, previous = self.layout.cu_seqlens, self.layout.previous
        offset = torch.arange(self.lags, device=previous.device)
        begun = cu_seqlens[:-1, None] + offset
        last = seams = begun[begun < cu_seqlens[1:, None]]
        found: list[Tensor] = []
        for _ in range(self.lags):
            last = torch.where(last >= 0, previous[last.clamp(min=0)], -1)
            found.append(last)
        return seams, found

    @cached_property
    def depth(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.layout.positions.max()) + 1
