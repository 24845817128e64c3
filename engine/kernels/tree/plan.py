"""The blocks of a forest on a CPU: which rows of q and k, in which order.

A long run's keys stand in a buffer whose column is a token's position: in depth-first order the
next run finds most of its path there, and names the tokens that are missing. Short runs are
batched, each with a copy of its keys.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.kernels.tree.layout import TreeLayout
from engine.kernels.tree.partition import Costs, Ints, Run, batches, partition, round_up

FLOPS, HALF_FLOPS = 85e9, 200e9  # a core's products per second, in fp32 and in bf16
SCORE, COPY = 1.2e-9, 150e-9  # seconds of a score beside its products, of a key's copies
CALL, HALF_CALL = 200e-6, 250e-6  # seconds of a block beside its products
SCORES = 1 << 18  # scores computed at once: what the caches hold
KEPT = 3  # weights of at most so many head dims a row are kept: not more than q, k and v


@dataclass(frozen=True)
class Shape:
    """Heads, head dim and type that a plan is made for."""

    heads: int
    kv_heads: int
    dim: int
    dtype: torch.dtype

    @property
    def costs(self) -> Costs:
        """In bf16 softmax wants rows of whole vectors, and sides grow in coarse steps: oneDNN
        compiles and keeps a kernel for every shape."""
        half = self.dtype == torch.bfloat16
        pair = self.heads * (14 * self.dim / (HALF_FLOPS if half else FLOPS) + SCORE)
        return Costs(
            call=(HALF_CALL if half else CALL) / pair,
            copy=COPY * self.kv_heads / pair,
            heads=self.heads,
            width=8 if half else 4,
            columns=32 if half else 16,
            far=128 if half else 16,
            scores=SCORES,
            parts=4 if half else 0,
        )


@dataclass(frozen=True)
class Move:
    """rows [kv_heads, count] of k as [kv_heads * tokens, dim], for the path from `column` on.
    The row past the end stands for none."""

    column: int
    rows: Tensor

    @property
    def columns(self) -> slice:
        return slice(self.column, self.column + self.rows.shape[1])


@dataclass(frozen=True)
class Block:
    """Queries of one long run, or of several short ones, each padded to `width` tokens.

    A key head has segments x query heads a key head x width rows of scores, with `columns`
    columns. A long run's keys are the first columns of the path buffer. Short runs have copies,
    their own tokens first: `key_rows` of k as [kv_heads * tokens, dim], ordered kv head, segment,
    column; None for a long run.
    query_rows: rows of q as [heads * tokens, dim], ordered kv head, segment, query head, token.
    Padding reads row 0; `padding` lists it among the query rows.
    bias [1, segments or 1, 1, width, columns - first]: 0 or -inf, from column `first` on.
    The block's results are staged from row `query_at` on, those of copied keys from `key_at` on;
    its weights, if they are `kept` for the backward pass, from `kept_at` on.
    load: what the path lacks, going forward; reload: going backward, after `flush` has taken the
    gradients of what stood there.
    """

    segments: int
    width: int
    columns: int
    first: int
    bias: Tensor | None
    heads_at_once: int
    query_rows: Tensor
    padding: Tensor
    key_rows: Tensor | None
    query_at: int
    key_at: int
    kept_at: int
    kept: bool
    load: Move | None = None
    flush: Move | None = None
    reload: Move | None = None

    def batch_shape(self, batch: int) -> tuple[int, int, int, int, int]:
        """Scores of `batch` = kv heads x segments by (kv head, segment, query head, token)."""
        return batch // self.segments, self.segments, -1, self.width, self.columns


@dataclass(frozen=True)
class Plan:
    """Blocks in forward order, and what they need together.

    path: columns of the path buffer; scores: most scores at once; kept: weights kept;
    staged_queries, staged_keys: rows of the staged results; query_order: the staged row of each
    row of q; key_order: that of the first copy of each row of k, row 0, which is zero, if it has
    none; more_staged, more_rows: staged rows of all other copies, and their rows;
    last: the path's gradients that are left at the end of the backward pass.
    """

    blocks: tuple[Block, ...]
    path: int
    scores: int
    kept: int
    staged_queries: int
    staged_keys: int
    query_order: Tensor
    key_order: Tensor
    more_staged: Tensor
    more_rows: Tensor
    last: Move | None


def plan(layout: TreeLayout, shape: Shape) -> Plan:
    """The plan of a layout on the CPU; made once, kept with the layout."""
    if shape not in layout.derived:
        layout.derived[shape] = _Planner(layout, shape).plan()
    made: Plan = layout.derived[shape]
    return made


Change = tuple[int, Ints, Ints]


def _changes(wanted: list[Ints]) -> tuple[list[Change], Ints]:
    """For each block (column, tokens that come, tokens that go, -1 for none), and what is left."""
    held = np.full(max((len(tokens) for tokens in wanted), default=0), -1)
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
        runs = partition(self.layout, self.costs)
        paths = self.paths(runs)
        short = [run for run in runs if self.costs.batched(run.columns)]
        long = [run for run in runs if not self.costs.batched(run.columns)]
        blocks = [self.batch(group, paths) for group in batches(short, self.costs)]
        wanted = [np.concatenate([paths[run], np.arange(run.start, run.stop)]) for run in long]
        forward, _ = _changes(wanted)
        backward, held = _changes(wanted[::-1])
        blocks += [
            self.run(run, paths[run], *changes)
            for run, *changes in zip(long, forward, backward[::-1], strict=True)
        ]
        heads = self.shape.heads // self.shape.kv_heads
        more = np.concatenate([np.empty((2, 0), dtype=np.int64), *self.more], axis=1)
        return Plan(
            blocks=tuple(blocks),
            path=max((run.columns for run in long), default=0),
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

    def paths(self, runs: list[Run]) -> dict[Run, Ints]:
        """Tokens before each run that its first token sees, in order of their positions."""
        paths = {}
        seen = np.empty(0, dtype=np.int64)  # the path and the tokens of the run before
        for run in runs:
            paths[run] = seen[self.ends[seen] > run.start]
            seen = np.concatenate([paths[run], np.arange(run.start, run.stop)])
        return paths

    def batch(self, group: list[Run], paths: dict[Run, Ints]) -> Block:
        """A block of short runs."""
        width = max(run.width for run in group)
        most = max(run.depth for run in group)
        columns = self.costs.sides(width, most)[1]
        segments = len(group)
        if self.costs.parts:
            fit = self.costs.scores // (self.costs.heads * width * columns)
            segments = round_up(segments, max(1, fit // self.costs.parts))
        queries = np.full((segments, width), -1)
        keys = np.full((segments, columns), -1)
        for row, run in enumerate(group):
            queries[row, : run.stop - run.start] = np.arange(run.start, run.stop)
            keys[row, width : width + run.depth] = paths[run]
        keys[:, :width] = queries
        rows, live = self.rows(keys, self.key_heads)
        self.stage_keys(rows, live)
        return self.block(queries, keys, 0, 0, torch.from_numpy(rows))

    def run(self, run: Run, path: Ints, forward: Change, backward: Change) -> Block:
        """A block of one long run."""
        first = int((self.ends[path] >= run.stop).sum())  # seen by all queries up to there
        queries = np.full((1, run.width), -1)
        queries[0, : run.stop - run.start] = np.arange(run.start, run.stop)
        keys = np.full((1, run.columns), -1)
        keys[0, : run.depth] = path
        keys[0, run.depth : run.depth + run.width] = queries
        block = self.block(queries, keys[:, first:], first, run.depth - first, None)
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
