"""What a plan is: the blocks of a forest on a CPU, which rows of q and k, in which order.

A long stretch's keys stand in a buffer whose column is a token's position: in depth-first order
the next stretch finds most of its path there, and names the tokens that are missing. Short
stretches are batched, each with a copy of its keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.tree.partition import Costs

FLOPS, HALF_FLOPS = 85e9, 200e9  # a core's products per second, in fp32 and in bf16
SCORE, COPY = 1.2e-9, 150e-9  # seconds of a score beside its products, of a key's copies
CALL, HALF_CALL = 200e-6, 250e-6  # seconds of a block beside its products
SCORES = 1 << 18  # scores computed at once: what the caches hold


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
    """Queries of one long stretch, or of several short ones, each padded to `width` tokens.

    A key head has segments x query heads a key head x width rows of scores, with `columns`
    columns. A long stretch's keys are the first columns of the path buffer. Short stretches have
    copies, their own tokens first: `key_rows` of k as [kv_heads * tokens, dim], ordered kv head,
    segment, column; None for a long stretch.
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
