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
    live [batch]: given where each row has one token; rows that are False stay as they are;
    context: longest start + length.
    """

    def __init__(
        self, slots: slice | Tensor, start: Tensor, lengths: Tensor, live: Tensor | None = None
    ) -> None:
        self.slots = slots
        self.start = start
        self.lengths = lengths
        self.live = live
        self.context = int((start + lengths).max())


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
    def sources(self) -> list[Tensor]:
        """For each lag the token [tokens] so many places before, in its own sequence; or -1."""
        previous = self.layout.previous
        found: list[Tensor] = []
        for lag in range(self.lags):
            last = found[-1] if lag else torch.arange(len(previous), device=previous.device)
            found.append(torch.where(last >= 0, previous[last.clamp(min=0)], -1))
        return found

    @cached_property
    def depth(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.layout.positions.max()) + 1
