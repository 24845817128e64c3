"""Which tokens of a forest are computed together on a CPU.

Small sub-trees that hang on the same token are batched. What remains is cut, in depth-first
order, into runs of consecutive tokens where a cost model finds the cheapest cuts: a run of m
queries behind d tokens of path costs m (d + m) pairs and one call.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.kernels.tree.layout import TreeLayout

Ints = NDArray[np.int64]
LONGEST_RUN = 256  # queries of a call: enough for full speed, the masked corner still small
CUT = 64  # where a long node may be cut
NEAREST_CUTS = 8  # tokens between two places that are considered for a cut
SMALL = 128  # tokens of a sub-tree that may be batched with its siblings
JOINED = 16  # tokens up to which small siblings share one mask
SCORES = 1 << 19  # scores computed at once: what the caches hold


@dataclass(frozen=True)
class Costs:
    """What the partition is chosen for.

    call: cost of a call beside its products, in pairs of a query and a key; heads: of queries;
    width, columns: steps in which the sides of a block grow; pieces: steps in which the number
    of batched sub-trees grows, as a share of the largest batch (0: no steps).
    """

    call: float
    heads: int
    width: int
    columns: int
    pieces: int


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def partition(layout: TreeLayout, costs: Costs) -> list[Ints]:
    """Token indices [segments, width] of every block, -1 where padded, in order of first token.

    Blocks of one segment are runs; those of more are batches of whole sub-trees with one parent.
    """
    positions = layout.positions.numpy()
    free = np.ones(layout.tokens, dtype=bool)
    blocks = []
    for depth, group in _small_siblings(layout):
        batches = _batches(group, depth, costs)
        total = sum(end - start for start, end in group)
        batched = sum(b.size * (depth + b.shape[1]) + 1.5 * costs.call for b in batches)
        if batched < total * (depth + min(total, LONGEST_RUN)) + costs.call:
            blocks += batches
            for start, end in group:
                free[start:end] = False
    rest = np.flatnonzero(free)
    if rest.size:
        edges = _runs(_cuts(layout, free), positions[rest], costs)
        blocks += [
            _padded([rest[a:b]], round_up(b - a, costs.width))
            for a, b in zip(edges, edges[1:], strict=False)
        ]
    return sorted(blocks, key=lambda block: int(block[0, 0]))


def _small_siblings(layout: TreeLayout) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """(depth, [(start, end)]) of the largest sub-trees of at most SMALL tokens, by parent."""
    starts = layout.cu_seqlens.numpy()
    ends = layout.ends.numpy()
    parents = layout.parents.tolist()
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    node = 0
    while node < layout.nodes:
        start = int(starts[node])
        end = int(ends[start])
        if end - start <= SMALL:
            groups[parents[node]].append((start, end))
            node = int(np.searchsorted(starts, end))
        else:
            node += 1
    positions = layout.positions.numpy()
    for group in groups.values():
        if len(group) > 1:
            yield int(positions[group[0][0]]), group


def _batches(group: list[tuple[int, int]], depth: int, costs: Costs) -> list[Ints]:
    """Sub-trees of one parent in batches of similar length."""
    joined = [group[0]]
    for start, end in group[1:]:
        if start == joined[-1][1] and end - joined[-1][0] <= JOINED:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    segments = sorted((np.arange(start, end) for start, end in joined), key=len, reverse=True)
    batches: list[Ints] = []
    first = 0
    while first < len(segments):
        width = round_up(len(segments[first]), costs.width)
        fit = max(SCORES // (costs.heads * width * (depth + width)), LONGEST_RUN // width, 1)
        last = first + 1
        spared = 0
        while last < min(len(segments), first + fit):
            own = round_up(len(segments[last]), costs.width)
            spared += (width - own) * (depth + width + own)
            if spared > costs.call and own <= 0.75 * width:
                break
            last += 1
        chosen = segments[first:last]
        if costs.pieces:
            step = max(1, fit // costs.pieces)
            chosen = chosen + [np.empty(0, dtype=np.int64)] * (-len(chosen) % step)
        batches.append(_padded(chosen, width))
        first = last
    return batches


def _padded(segments: list[Ints], width: int) -> Ints:
    tokens = np.full((len(segments), width), -1)
    for row, segment in zip(tokens, segments, strict=True):
        row[: len(segment)] = segment
    return tokens


def _cuts(layout: TreeLayout, free: NDArray[np.bool_]) -> list[int]:
    """Places, counted in free tokens, where a run may begin or end; nodes are free as a whole."""
    cuts = [0]
    offset = 0
    starts = layout.cu_seqlens.numpy()
    lengths = np.diff(starts)
    for length in lengths[free[starts[:-1]]].tolist():
        if offset - cuts[-1] >= NEAREST_CUTS:
            cuts.append(offset)
        cuts.extend(range(offset + CUT, offset + length, CUT))
        offset += length
    if offset - cuts[-1] < NEAREST_CUTS and len(cuts) > 1:
        cuts.pop()
    return [*cuts, offset]


def _runs(cuts: list[int], positions: Ints, costs: Costs) -> list[int]:
    """The cheapest choice of cuts, by dynamic programming; positions are those of free tokens."""
    depths = positions[cuts[:-1]].tolist()
    best = [0.0]
    came_from = [0]
    for stop in range(1, len(cuts)):
        cheapest, origin = np.inf, stop - 1
        for start in range(stop - 1, -1, -1):
            length = cuts[stop] - cuts[start]
            if length > LONGEST_RUN and start < stop - 1:
                break
            width = round_up(length, costs.width)
            pairs = (width + 8) * round_up(depths[start] + width, costs.columns)
            cost = best[start] + costs.call + pairs
            if cost < cheapest:
                cheapest, origin = cost, start
        best.append(cheapest)
        came_from.append(origin)
    chosen = [len(cuts) - 1]
    while chosen[-1]:
        chosen.append(came_from[chosen[-1]])
    return [cuts[index] for index in reversed(chosen)]
