"""Tree attention in blocks of queries: plain products, forward and backward, for a CPU."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from engine.kernels.tree.layout import TreeLayout
from engine.kernels.tree.plan import Block, Move, Plan, Shape
from engine.kernels.tree.planner import plan


def blocked_attention(q: Tensor, k: Tensor, v: Tensor, layout: TreeLayout, scale: float) -> Tensor:
    """q: [heads, tokens, dim]; k, v: [kv_heads, tokens, dim]; returns the shape of q."""
    shape = Shape(q.shape[0], k.shape[0], q.shape[2], q.dtype)
    return _Blocked.apply(q, k, v, plan(layout, shape), scale)  # type: ignore[no-untyped-call,no-any-return]


class _Blocked(torch.autograd.Function):
    """Saves q, k, v and the weights of short rows; other weights are computed again.

    Every row of scores is whole, so that softmax and its backward are torch's fused ones.
    Results are staged block by block and brought into order at once.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float) -> Tensor:
        q, k, v = (x.contiguous() for x in (q, k, v))
        keys, values = _Keys(k, plan), _Keys(v, plan)
        q_rows = q.view(-1, q.shape[2])
        scratch, kept = q.new_empty(plan.scores), q.new_empty(plan.kept)
        staged = q.new_empty(plan.staged_queries, q.shape[2])
        for block in plan.blocks:
            queries = _gather(q_rows, block, keys.heads).mul_(scale)
            result = _part(staged, block.query_at, queries)
            block_keys, block_values = keys.of(block, block.load), values.of(block, block.load)
            for batch, at in _pieces(block, queries):
                room = kept[at:] if block.kept else scratch
                p = _weights(block, queries[batch], block_keys[batch], room)
                torch.bmm(p, block_values[batch], out=result[batch])
        ctx.save_for_backward(q, k, v, kept)
        ctx.plan, ctx.scale = plan, scale
        return staged.index_select(0, plan.query_order).view(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, kept = ctx.saved_tensors
        plan, dim = ctx.plan, q.shape[2]
        keys, values = _Keys(k, plan), _Keys(v, plan)
        d_keys, d_values = _KeyGradients(k, plan), _KeyGradients(v, plan)
        q_rows, g_rows = q.view(-1, dim), grads[0].contiguous().view(-1, dim)
        staged = q.new_empty(plan.staged_queries, dim)
        scratch, scratch_p = q.new_empty(2, plan.scores)
        for block in reversed(plan.blocks):
            d_keys.flush(block.flush)
            d_values.flush(block.flush)
            block_keys, block_values = keys.of(block, block.reload), values.of(block, block.reload)
            queries = _gather(q_rows, block, keys.heads).mul_(ctx.scale)
            d_out = _gather(g_rows, block, keys.heads)
            d_out.view(-1, dim).index_fill_(0, block.padding, 0)
            d_queries = _part(staged, block.query_at, queries)
            for batch, at in _pieces(block, queries):
                if block.kept:
                    p = _scores_in(kept[at:], block, queries[batch])
                else:
                    p = _weights(block, queries[batch], block_keys[batch], scratch_p)
                d_values.collect(block, p, d_out[batch], batch)
                d_p = _scores_in(scratch, block, queries[batch])
                torch.bmm(d_out[batch], block_values[batch].transpose(1, 2), out=d_p)
                d_s = torch._softmax_backward_data(d_p, p, -1, p.dtype, grad_input=d_p)
                torch.bmm(d_s, block_keys[batch], out=d_queries[batch])
                d_keys.collect(block, d_s, queries[batch], batch)
        d_q = staged.index_select(0, plan.query_order).view(q.shape).mul_(ctx.scale)
        return d_q, d_keys.finish(), d_values.finish(), None, None


def _gather(rows: Tensor, block: Block, kv_heads: int) -> Tensor:
    """The block's rows of q, or of the output's gradient: [kv_heads * segments, rows, dim]."""
    return rows.index_select(0, block.query_rows).view(kv_heads * block.segments, -1, rows.shape[1])


def _part(staged: Tensor, at: int, like: Tensor) -> Tensor:
    """The rows of staged [rows, dim] from `at` on, in the shape of `like`."""
    return staged[at : at + like.shape[0] * like.shape[1]].view(like.shape)


def _pieces(block: Block, queries: Tensor) -> Iterator[tuple[slice, int]]:
    """Parts of the batch whose scores fit the caches, and where their kept weights begin."""
    step = block.heads_at_once * block.segments
    for start in range(0, queries.shape[0], step):
        yield slice(start, start + step), block.kept_at + start * queries.shape[1] * block.columns


def _scores_in(room: Tensor, block: Block, queries: Tensor) -> Tensor:
    """[batch, rows, columns] at the start of `room`."""
    batch, rows = queries.shape[:2]
    return room[: batch * rows * block.columns].view(batch, rows, block.columns)


def _weights(block: Block, queries: Tensor, keys: Tensor, room: Tensor) -> Tensor:
    """Attention weights [batch, rows, columns], in `room`."""
    scores = _scores_in(room, block, queries)
    torch.bmm(queries, keys.transpose(1, 2), out=scores)
    if block.bias is not None:
        by_head = scores.view(block.batch_shape(scores.shape[0]))
        by_head[..., block.first :].add_(block.bias)
    return torch.softmax(scores, dim=-1, out=scores)


class _Keys:
    """The keys, or the values, of one block after another."""

    def __init__(self, x: Tensor, plan: Plan) -> None:
        self.heads, _, self.dim = x.shape
        self.rows = x.view(-1, self.dim)
        self.path = x.new_zeros(self.heads, plan.path, self.dim)

    def of(self, block: Block, move: Move | None) -> Tensor:
        """[kv_heads * segments, columns, dim]; `move` names what the path lacks for the block."""
        if block.key_rows is not None:
            return self.rows.index_select(0, block.key_rows).view(-1, block.columns, self.dim)
        if move is not None:
            missing = self.rows.index_select(0, move.rows.view(-1))
            self.path[:, move.columns].copy_(missing.view(self.heads, -1, self.dim))
        return self.path[:, : block.columns]


class _KeyGradients:
    """Gradients of the keys, or of the values; fp32 beside bf16 where several blocks add."""

    def __init__(self, x: Tensor, plan: Plan) -> None:
        self.plan, self.like = plan, x
        heads, tokens, dim = x.shape
        self.exact = torch.float32 if x.dtype == torch.bfloat16 else x.dtype
        self.path = x.new_zeros(heads, dim, plan.path, dtype=self.exact)
        self.staged = x.new_empty(plan.staged_keys, dim)
        self.staged[0] = 0
        self.sums: Tensor | None = None  # [kv_heads * tokens + 1, dim]
        if plan.path or plan.more_rows.numel():
            self.sums = x.new_zeros(heads * tokens + 1, dim, dtype=self.exact)

    def collect(self, block: Block, p: Tensor, x: Tensor, batch: slice) -> None:
        """Takes p^T x; on the path transposed, x^T p, which is faster."""
        if block.key_rows is not None:
            count = p.shape[0] * block.columns
            at = block.key_at + batch.start * block.columns
            into = self.staged[at : at + count].view(-1, block.columns, x.shape[2])
            torch.bmm(p.transpose(1, 2), x, out=into)
            return
        columns = self.path[batch, :, : block.columns]
        if columns.dtype == p.dtype:
            columns.baddbmm_(x.transpose(1, 2), p)
        else:  # sums of two types are slow, cast first
            columns.add_(torch.bmm(x.transpose(1, 2), p).to(columns.dtype))

    def flush(self, move: Move | None) -> None:
        """Adds the gradients of columns of the path to their rows and clears them."""
        if move is not None and self.sums is not None:
            columns = self.path[:, :, move.columns]
            self.sums.index_add_(0, move.rows.view(-1), columns.transpose(1, 2).flatten(0, 1))
            columns.zero_()

    def finish(self) -> Tensor:
        """The gradient, in the shape and type of the keys."""
        rows = self.staged.index_select(0, self.plan.key_order)
        if self.sums is not None:
            self.flush(self.plan.last)
            more = self.staged.index_select(0, self.plan.more_staged).to(self.exact)
            self.sums.index_add_(0, self.plan.more_rows, more)
            rows = self.sums[:-1].add_(rows.to(self.exact)).to(rows.dtype)
        return rows.view(self.like.shape)
