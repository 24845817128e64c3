"""Makes the plan of a forest on a CPU from its partition, once for all layers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.kernels.tree.layout import TreeLayout
from engine.kernels.tree.partition import Ints, Stretch, batches, partition, round_up
from engine.kernels.tree.plan import Block, Move, Plan, Shape

KEPT = 3  # weights of at most so many head dims a row are kept: not more than q, k and v


def plan(layout: TreeLayout, shape: Shape) -> Plan:
    """The plan of a layout on the CPU; made once, kept with the layout."""
    if shape not in layout.derived:
        layout.derived[shape] = _Planner(layout, shape).plan()
    made: Plan = layout.derived[shape]
    return made


Change = tuple[int, Ints, Ints]


def _changes(wanted: Iterator[Ints], columns: int) -> tuple[list[Change], Ints]:
    """For each block (column, tokens that come, tokens that go, -1 for none), and what is left."""
    held = np.full(columns, -1)
    changes = []
    for tokens in wanted:
        differs = np.flatnonzero(held[: len(tokens)] != tokens)
        column = int(differs[0]) if differs.size else len(tokens)
        changes.append((column, tokens[column:], held[column : len(tokens)].copy()))
        held[column : len(tokens)] = tokens[column:]
    return changes, held


class _Planner:
    """Makes the blocks one after another and counts what they stage and keep."""

    def __init__(self, layout: TreeLayout, shape: Shape) -> None:
        self.layout, self.shape, self.costs = layout, shape, shape.costs
        self.ends = layout.ends.numpy()
        self.query_heads = np.arange(shape.heads).reshape(shape.kv_heads, 1, -1, 1)
        self.key_heads = np.arange(shape.kv_heads).reshape(-1, 1, 1)
        self.biases: dict[tuple[tuple[int, ...], bytes], Tensor] = {}  # equal masks are kept once
        self.staged_queries, self.staged_keys, self.kept = 0, 1, 0
        self.query_order = np.zeros(shape.heads * layout.tokens, dtype=np.int64)
        self.key_order = np.zeros(shape.kv_heads * layout.tokens, dtype=np.int64)
        self.more: list[Ints] = []

    def plan(self) -> Plan:
        stretches = partition(self.layout, self.costs)
        short = [stretch for stretch in stretches if self.costs.batched(stretch.columns)]
        long = [stretch for stretch in stretches if not self.costs.batched(stretch.columns)]
        blocks = [self.batch(group) for group in batches(short, self.costs)]
        path = max((stretch.columns for stretch in long), default=0)
        forward, _ = _changes(self.keys_of(long), path)
        backward, held = _changes(self.keys_of(long[::-1]), path)
        blocks += [
            self.stretch(stretch, *changes)
            for stretch, *changes in zip(long, forward, backward[::-1], strict=True)
        ]
        heads = self.shape.heads // self.shape.kv_heads
        more = np.concatenate([np.empty((2, 0), dtype=np.int64), *self.more], axis=1)
        return Plan(
            blocks=tuple(blocks),
            path=path,
            scores=max(
                block.heads_at_once * block.segments * heads * block.width * block.columns
                for block in blocks
            ),
            kept=self.kept,
            staged_queries=self.staged_queries,
            staged_keys=self.staged_keys,
            query_order=torch.from_numpy(self.query_order),
            key_order=torch.from_numpy(self.key_order),
            more_staged=torch.from_numpy(more[0]),
            more_rows=torch.from_numpy(more[1]),
            last=self.move(0, held),
        )

    def path(self, stretch: Stretch) -> Ints:
        """Tokens before the stretch that its first token sees, in order of their positions."""
        return np.flatnonzero(self.ends[: stretch.start] > stretch.start)

    def keys_of(self, stretches: list[Stretch]) -> Iterator[Ints]:
        """The tokens that each stretch has in the path buffer."""
        return (np.concatenate([self.path(r), np.arange(r.start, r.stop)]) for r in stretches)

    def batch(self, group: list[Stretch]) -> Block:
        """A block of short stretches."""
        width = max(stretch.width for stretch in group)
        most = max(stretch.depth for stretch in group)
        columns = self.costs.sides(width, most)[1]
        segments = len(group)
        if self.costs.parts:
            fit = self.costs.scores // (self.costs.heads * width * columns)
            segments = round_up(segments, max(1, fit // self.costs.parts))
        queries = np.full((segments, width), -1)
        keys = np.full((segments, columns), -1)
        for row, stretch in enumerate(group):
            queries[row, : stretch.stop - stretch.start] = np.arange(stretch.start, stretch.stop)
            keys[row, width : width + stretch.depth] = self.path(stretch)
        keys[:, :width] = queries
        rows, live = self.rows(keys, self.key_heads)
        self.stage_keys(rows, live)
        return self.block(queries, keys, 0, 0, torch.from_numpy(rows))

    def stretch(self, stretch: Stretch, forward: Change, backward: Change) -> Block:
        """A block of one long stretch."""
        path = self.path(stretch)
        first = int((self.ends[path] >= stretch.stop).sum())  # seen by all queries up to there
        queries = np.full((1, stretch.width), -1)
        queries[0, : stretch.stop - stretch.start] = np.arange(stretch.start, stretch.stop)
        keys = np.full((1, stretch.columns), -1)
        keys[0, : stretch.depth] = path
        keys[0, stretch.depth : stretch.depth + stretch.width] = queries
        block = self.block(queries, keys[:, first:], first, stretch.depth - first, None)
        return replace(
            block,
            load=self.move(*forward[:2]),
            flush=self.move(backward[0], backward[2]),
            reload=self.move(*backward[:2]),
        )

    def block(
        self, queries: Ints, keys: Ints, first: int, own: int, key_rows: Tensor | None
    ) -> Block:
        """queries [segments, width] and keys [segments, columns] as tokens, -1 where padded."""
        segments, width = queries.shape
        columns = first + keys.shape[1]
        kv_heads = self.shape.kv_heads
        scores = segments * self.shape.heads // kv_heads * width * columns
        rows, live = self.rows(queries[:, None], self.query_heads)
        self.query_order[rows[live]] = self.staged_queries + np.flatnonzero(live)
        block = Block(
            segments=segments,
            width=width,
            columns=columns,
            first=first,
            bias=self.bias(queries, keys, own),
            heads_at_once=min(kv_heads, max(1, self.costs.scores // scores)),
            query_rows=torch.from_numpy(rows),
            padding=torch.from_numpy(np.flatnonzero(~live)),
            key_rows=key_rows,
            query_at=self.staged_queries,
            key_at=self.staged_keys - (0 if key_rows is None else len(key_rows)),
            kept_at=self.kept,
            kept=columns <= KEPT * self.shape.dim,
        )
        self.staged_queries += len(rows)
        self.kept += block.kept * kv_heads * scores
        return block

    def rows(self, tokens: Ints, head: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Flat rows of tokens in heads, and which are not padding; padding reads row 0."""
        live = np.broadcast_to(tokens >= 0, np.broadcast_shapes(head.shape, tokens.shape)).ravel()
        return np.where(live, (head * self.layout.tokens + tokens).ravel(), 0), live

    def stage_keys(self, rows: Ints, live: NDArray[np.bool_]) -> None:
        """The first copy of a key is gathered from where it is staged, all others are added."""
        staged = self.staged_keys + np.flatnonzero(live)
        self.staged_keys += len(rows)
        kept, index = np.unique(rows[live], return_index=True)
        fresh = index[self.key_order[kept] == 0]
        self.key_order[rows[live][fresh]] = staged[fresh]
        others = np.ones(len(staged), dtype=bool)
        others[fresh] = False
        self.more.append(np.stack([staged[others], rows[live][others]]))

    def move(self, column: int, tokens: Ints) -> Move | None:
        if not (tokens >= 0).any():
            return None
        kv_heads = self.shape.kv_heads
        rows, live = self.rows(tokens, np.arange(kv_heads)[:, None])
        rows[~live] = kv_heads * self.layout.tokens
        return Move(column, torch.from_numpy(rows.reshape(kv_heads, -1)))

    def bias(self, queries: Ints, keys: Ints, own: int) -> Tensor | None:
        """Padded queries see their own column, `own` and on, and those before it from there: so
        their softmax is finite, and a short plain sequence has the mask of a long one."""
        query, key = queries[:, :, None], keys[:, None]
        visible = (key >= 0) & (key <= query) & (query < self.ends[key])
        column = np.arange(keys.shape[1]) - own
        earlier = (column >= 0) & (column <= np.arange(queries.shape[1])[:, None])
        hidden = ~np.where(query >= 0, visible, earlier)
        if (hidden == hidden[0]).all():
            hidden = hidden[:1]
        if not hidden.any():
            return None
        name = hidden.shape, hidden.tobytes()
        if name not in self.biases:
            bias = torch.zeros(hidden.shape, dtype=self.shape.dtype)
            bias.masked_fill_(torch.from_numpy(hidden), -torch.inf)
            self.biases[name] = bias[None, :, None]
        return self.biases[name]
