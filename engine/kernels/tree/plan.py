"""The query blocks of a forest on a CPU: which rows, which keys, in which order.

A block's queries see one path of ancestors, dense and unmasked, and their own tokens under a
small mask. The path is kept in a buffer whose column is a token's position, so that in
depth-first order little is ever copied: a block names the tokens that the buffer lacks.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.kernels.tree.layout import TreeLayout
from engine.kernels.tree.partition import SCORES, Costs, Ints, partition, round_up

FLOPS, EXPONENT, CALL = 85e9, 1.2e-9, 120e-6  # per second; seconds per score; seconds


@dataclass(frozen=True)
class Shape:
    """Heads, head dim and type that a plan is made for."""

    heads: int
    kv_heads: int
    dim: int
    dtype: torch.dtype

    @property
    def costs(self) -> Costs:
        """In bf16 sides grow in coarse steps: oneDNN compiles and keeps a kernel a shape."""
        half = self.dtype == torch.bfloat16
        pair = self.heads * (14 * self.dim / (FLOPS * (2.5 if half else 1)) + EXPONENT)
        if half:
            return Costs(CALL / pair, self.heads, width=8, columns=64, pieces=4)
        return Costs(CALL / pair, self.heads, width=4, columns=8, pieces=0)


@dataclass(frozen=True)
class Move:
    """rows [kv_heads, count] of k as [kv_heads * tokens, dim], for the path from `column` on.
    A row past the end stands for padding."""

    column: int
    rows: Tensor

    @property
    def columns(self) -> slice:
        return slice(self.column, self.column + self.rows.shape[1])


@dataclass(frozen=True)
class Block:
    """Queries of one run, or of several sub-trees of one parent, each padded to `width` tokens.

    A key head has `rows` queries: segments x query heads a key head x width; each has `columns`
    scores. The first `path` of them are of keys in the path buffer, where those of a run itself
    stand too. Sub-trees have `width` more, each its own: `key_rows`, ordered kv head, segment,
    token; a run has none.
    bias [1, segments or 1, 1, width, columns - first]: 0 or -inf, from column `first` on.
    query_rows: rows of q as [heads * tokens, dim], ordered kv head, segment, query head, token.
    Padding reads row 0; in *_targets it is sent to a row past the end, and `padding` lists it.
    load: what the path lacks, going forward; reload: going backward, after `flush` has taken the
    gradients of what stood there.
    """

    segments: int
    width: int
    rows: int
    path: int
    columns: int
    first: int
    bias: Tensor | None
    heads_at_once: int
    query_rows: Tensor
    query_targets: Tensor
    padding: Tensor
    key_rows: Tensor
    key_targets: Tensor
    load: Move | None
    flush: Move | None
    reload: Move | None

    @property
    def batched(self) -> int:
        """Segments that hold their own keys."""
        return self.segments if self.segments > 1 else 0


@dataclass(frozen=True)
class Plan:
    """Blocks in forward order, the largest path and number of scores at once; `last` takes the
    gradients that are left in the path at the end of the backward pass."""

    blocks: tuple[Block, ...]
    path: int
    scores: int
    last: Move | None


def plan(layout: TreeLayout, shape: Shape) -> Plan:
    """The plan of a layout on the CPU; made once, kept with the layout."""
    if shape not in layout.derived:
        layout.derived[shape] = _make(layout, shape)
    made: Plan = layout.derived[shape]
    return made


def _make(layout: TreeLayout, shape: Shape) -> Plan:
    ends = layout.ends.numpy()
    pieces = partition(layout, shape.costs)
    paths = _paths(pieces, ends)
    wanted = [
        np.concatenate([path, piece[piece >= 0]]) if len(piece) == 1 else path
        for piece, path in zip(pieces, paths, strict=True)
    ]
    maker = _Maker(shape, layout.tokens, ends, {})
    capacity = max(maker.sides(piece, path)[0] for piece, path in zip(pieces, paths, strict=True))
    forward, _ = _changes(wanted, capacity)
    backward, held = _changes(wanted[::-1], capacity)
    blocks = [
        maker.block(*parts) for parts in zip(pieces, paths, forward, backward[::-1], strict=True)
    ]
    return Plan(
        blocks=tuple(blocks),
        path=capacity,
        scores=max(b.heads_at_once * b.rows * b.columns for b in blocks),
        last=maker.move((0, held)),
    )


def _paths(pieces: list[Ints], ends: Ints) -> list[Ints]:
    """Tokens before the first of each piece that it sees, in order of their positions.

    They stand in earlier runs only: a batched sub-tree is seen by nothing outside it.
    """
    paths = []
    seen = np.empty(0, dtype=np.int64)  # path and tokens of the last run
    for piece in pieces:
        first = piece[0, 0]
        path = seen[(seen < first) & (ends[seen] > first)]
        paths.append(path)
        if len(piece) == 1:
            seen = np.concatenate([path, piece[piece >= 0]])
    return paths


Change = tuple[int, Ints, Ints]


def _changes(wanted: list[Ints], capacity: int) -> tuple[list[Change], Ints]:
    """For each block (column, tokens that come, tokens that go, -1 for none), and what is left."""
    held = np.full(capacity, -1)
    changes = []
    for tokens in wanted:
        differs = np.flatnonzero(held[: len(tokens)] != tokens)
        column = int(differs[0]) if differs.size else len(tokens)
        changes.append((column, tokens[column:], held[column : len(tokens)].copy()))
        held[column : len(tokens)] = tokens[column:]
    return changes, held


@dataclass(frozen=True)
class _Maker:
    shape: Shape
    tokens: int
    ends: Ints
    biases: dict[tuple[tuple[int, ...], bytes], Tensor]  # equal masks are kept once

    def sides(self, piece: Ints, path: Ints) -> tuple[int, int]:
        """Columns of a block in the path buffer and in all."""
        step, width = self.shape.costs.columns, piece.shape[1]
        if len(piece) == 1:
            columns = round_up(len(path) + width, step)
            return columns, columns
        columns = round_up(len(path), step)
        return columns, columns + width

    def block(self, piece: Ints, path: Ints, forward: Change, backward: Change) -> Block:
        segments, width = piece.shape
        depth = len(path)
        in_path, columns = self.sides(piece, path)
        if segments == 1:
            own = depth
            first = int((self.ends[path] > piece.max()).sum())
            keys = np.full((1, columns - first), -1)
            keys[0, : depth - first] = path[first:]
        else:
            own, first = in_path, depth
            keys = np.full((segments, columns - first), -1)
        keys[:, own - first : own - first + width] = piece
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        group = heads // kv_heads
        head = np.arange(heads).reshape(kv_heads, 1, group, 1)
        query_rows, query_targets = self.rows(piece[:, None], head)
        own_keys = piece if segments > 1 else piece[:0]
        key_rows, key_targets = self.rows(own_keys, np.arange(kv_heads)[:, None, None])
        rows = segments * group * width
        return Block(
            segments=segments,
            width=width,
            rows=rows,
            path=in_path,
            columns=columns,
            first=first,
            bias=self.bias(piece, keys, own - first),
            heads_at_once=min(kv_heads, max(1, SCORES // (rows * columns))),
            query_rows=query_rows,
            query_targets=query_targets,
            padding=torch.nonzero(query_targets == heads * self.tokens)[:, 0],
            key_rows=key_rows,
            key_targets=key_targets,
            load=self.move(forward[:2]),
            flush=self.move((backward[0], backward[2])),
            reload=self.move(backward[:2]),
        )

    def rows(self, tokens: Ints, head: Ints) -> tuple[Tensor, Tensor]:
        """Flat rows of tokens in heads: to read from, and to write to."""
        rows = head * self.tokens + tokens
        padding = np.broadcast_to(tokens < 0, rows.shape)
        targets = np.where(padding, head.size * self.tokens, rows)
        return (
            torch.from_numpy(np.where(padding, 0, rows).ravel()),
            torch.from_numpy(targets.ravel()),
        )

    def move(self, change: tuple[int, Ints]) -> Move | None:
        column, tokens = change
        if not (tokens >= 0).any():
            return None
        kv_heads = self.shape.kv_heads
        _, targets = self.rows(tokens, np.arange(kv_heads)[:, None])
        return Move(column, targets.view(kv_heads, -1))

    def bias(self, queries: Ints, keys: Ints, own: int) -> Tensor | None:
        """queries [segments, width], keys [segments, columns] as tokens, -1 where padded.

        A padded query sees its own column and the local ones before it, so that its softmax is
        finite and a short plain sequence has the mask of a long one.
        """
        query, key = queries[:, :, None], keys[:, None]
        visible = (key >= 0) & (key <= query) & (query < self.ends[key])
        column = np.arange(keys.shape[1]) - own
        earlier = (column >= 0) & (column <= np.arange(queries.shape[1])[:, None])
        hidden: NDArray[np.bool_] = ~np.where(query >= 0, visible, earlier)
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
