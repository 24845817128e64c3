"""Cuts a forest into stretches of consecutive tokens that are computed together on a CPU.

In depth-first order a stretch of m queries behind d tokens of path costs m (d + m) pairs of query
and key, and a call. A stretch that sees few keys is cheaper when it is batched with others like it,
each with a copy of its keys; one that sees many shares them with its neighbours in a buffer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.kernels.tree.layout import TreeLayout

Ints = NDArray[np.int64]
LONGEST_STRETCH = 256  # queries of a stretch: enough for full speed, the masked corner still small
CUT = 64  # where a long node may be cut
NEAREST_CUTS = 8, 24  # tokens from one such place to the next at a node's start, and inside
MOST_COPIED = 512  # keys of a stretch that may be batched


@dataclass(frozen=True)
class Costs:
    """What a forest is cut for; costs in pairs of a query and a key.

    call: of a call, beside its products; copy: of a key's copy, for a batched stretch;
    width, columns: steps in which the sides of a block grow; far: that of columns past 512;
    scores: scores computed at once, over all `heads` of queries;
    parts: batches grow in steps of this part of the largest (0: no steps).
    """

    call: float
    copy: float
    heads: int
    width: int
    columns: int
    far: int
    scores: int
    parts: int

    def sides(self, queries: int, depth: int) -> tuple[int, int]:
        """Width and columns of a block of one stretch."""
        width = round_up(queries, self.width)
        columns = depth + width
        return width, round_up(columns, self.far if columns > MOST_COPIED else self.columns)

    def batched(self, columns: int) -> bool:
        return columns <= MOST_COPIED and columns * self.copy < self.call

    def stretch(self, queries: int, depth: int) -> float:
        width, columns = self.sides(queries, depth)
        extra = columns * self.copy if self.batched(columns) else self.call + 8 * columns
        return width * columns + extra


@dataclass(frozen=True)
class Stretch:
    """Tokens start : stop, of which the first is at position `depth`."""

    start: int
    stop: int
    depth: int
    width: int
    columns: int


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def partition(layout: TreeLayout, costs: Costs) -> list[Stretch]:
    """Stretches that cover the forest, in order."""
    cuts = _cuts(layout)
    depths = layout.positions[cuts[:-1]].tolist()
    chosen = _cheapest(cuts, depths, costs)
    return [
        Stretch(cuts[a], cuts[b], depths[a], *costs.sides(cuts[b] - cuts[a], depths[a]))
        for a, b in zip(chosen, chosen[1:], strict=False)
    ]


def batches(stretches: list[Stretch], costs: Costs) -> list[list[Stretch]]:
    """Stretches of similar sides together, as many as the caches hold the scores of."""
    made: list[list[Stretch]] = []
    filled = width = columns = 0
    for stretch in sorted(
        stretches, key=lambda stretch: (stretch.columns, stretch.width), reverse=True
    ):
        count = len(made[-1]) + 1 if made else 1
        sides = max(width, stretch.width), max(columns, stretch.columns)
        area = count * sides[0] * sides[1]
        own = stretch.width * stretch.columns
        if not made or area * costs.heads > costs.scores or area - filled - own > costs.call:
            made.append([])
            filled, sides = 0, (stretch.width, stretch.columns)
        made[-1].append(stretch)
        filled += own
        width, columns = sides
    return made


def _cuts(layout: TreeLayout) -> list[int]:
    """Places where a stretch may begin or end."""
    at_start, inside = NEAREST_CUTS
    cuts = [0]
    starts = layout.cu_seqlens.tolist()
    for start, stop in zip(starts, starts[1:], strict=False):
        if start - cuts[-1] >= at_start:
            cuts.append(start)
        cuts.extend(range(start + CUT, stop - inside, CUT))
    if starts[-1] - cuts[-1] < at_start and len(cuts) > 1:
        cuts.pop()
    return [*cuts, starts[-1]]


def _cheapest(cuts: list[int], depths: list[int], costs: Costs) -> list[int]:
    """Indices of the cheapest choice of cuts, by dynamic programming."""
    best = [0.0]
    came_from = [0]
    for stop in range(1, len(cuts)):
        cheapest, origin = np.inf, stop - 1
        for start in range(stop - 1, -1, -1):
            queries = cuts[stop] - cuts[start]
            if queries > LONGEST_STRETCH and start < stop - 1:
                break
            cost = best[start] + costs.stretch(queries, depths[start])
            if cost < cheapest:
                cheapest, origin = cost, start
        best.append(cheapest)
        came_from.append(origin)
    chosen = [len(cuts) - 1]
    while chosen[-1]:
        chosen.append(came_from[chosen[-1]])
    return chosen[::-1]
