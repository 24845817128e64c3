"""Tree attention in blocks of queries: plain products, forward and backward, for a CPU."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from engine.kernels.tree.layout import TreeLayout
from engine.kernels.tree.plan import Block, Move, Plan, Shape, plan


def blocked_attention(q: Tensor, k: Tensor, v: Tensor, layout: TreeLayout, scale: float) -> Tensor:
    """q: [heads, tokens, dim]; k, v: [kv_heads, tokens, dim]; returns the shape of q."""
    shape = Shape(q.shape[0], k.shape[0], q.shape[2], q.dtype)
    return _Blocked.apply(q, k, v, plan(layout, shape), scale)  # type: ignore[no-untyped-call,no-any-return]


class _Blocked(torch.autograd.Function):
    """Saves q, k and v; the scores are computed again, a block at a time.

    Every row of scores is whole, so that softmax and its backward are torch's fused ones.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float) -> Tensor:
        dim = q.shape[-1]
        q, k, v = (x.contiguous() for x in (q, k, v))
        ctx.save_for_backward(q, k, v)
        ctx.plan, ctx.scale = plan, scale
        q_rows, k_rows, v_rows = (x.view(-1, dim) for x in (q, k, v))
        out = q_rows.new_empty(len(q_rows) + 1, dim)
        keys, values = _buffer(k, plan), _buffer(v, plan)
        scratch = q.new_empty(plan.scores)
        for block in plan.blocks:
            _load(keys, k_rows, block.load)
            _load(values, v_rows, block.load)
            queries = q_rows.index_select(0, block.query_rows).mul_(scale).view(-1, block.rows, dim)
            own_keys, own_values = (_own(rows, block, len(k)) for rows in (k_rows, v_rows))
            result = torch.empty_like(queries)
            for heads in _heads(block, len(k)):
                p = _weights(block, queries[heads], keys[heads], own_keys[heads], scratch)
                _apply(block, p, values[heads], own_values[heads], result[heads])
            out.index_copy_(0, block.query_targets, result.view(-1, dim))
        return out[:-1].view(q.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        plan, scale, dim = ctx.plan, ctx.scale, q.shape[-1]
        q_rows, k_rows, v_rows, g_rows = (x.view(-1, dim) for x in (q, k, v, grads[0].contiguous()))
        exact = torch.float32 if q.dtype == torch.bfloat16 else q.dtype
        d_q = q_rows.new_empty(len(q_rows) + 1, dim)
        d_k, d_v = (k_rows.new_zeros(len(k_rows) + 1, dim, dtype=exact) for _ in range(2))
        keys, values = _buffer(k, plan), _buffer(v, plan)
        d_keys, d_values = (keys.new_zeros(len(k), dim, plan.path, dtype=exact) for _ in range(2))
        scratch, scratch_p = q.new_empty(2, plan.scores)
        for block in reversed(plan.blocks):
            for source, buffer, into, gathered in (
                (k_rows, keys, d_k, d_keys),
                (v_rows, values, d_v, d_values),
            ):
                _flush(gathered, into, block.flush)
                _load(buffer, source, block.reload)
            queries = q_rows.index_select(0, block.query_rows).mul_(scale).view(-1, block.rows, dim)
            d_out = g_rows.index_select(0, block.query_rows)
            d_out = d_out.index_fill_(0, block.padding, 0).view_as(queries)
            own_keys, own_values = (_own(rows, block, len(k)) for rows in (k_rows, v_rows))
            d_own_keys, d_own_values = torch.empty_like(own_keys), torch.empty_like(own_values)
            d_queries = torch.empty_like(queries)
            for heads in _heads(block, len(k)):
                p = _weights(block, queries[heads], keys[heads], own_keys[heads], scratch_p)
                _collect(block, p, d_out[heads], d_values[heads], d_own_values[heads])
                d_p = _scores(block, d_out[heads], values[heads], own_values[heads], scratch)
                d_s = torch._softmax_backward_data(d_p, p, -1, p.dtype, grad_input=d_p)
                _apply(block, d_s, keys[heads], own_keys[heads], d_queries[heads])
                _collect(block, d_s, queries[heads], d_keys[heads], d_own_keys[heads])
            d_q.index_copy_(0, block.query_targets, d_queries.mul_(scale).view(-1, dim))
            if block.batched:
                d_k.index_copy_(0, block.key_targets, d_own_keys.view(-1, dim).to(exact))
                d_v.index_copy_(0, block.key_targets, d_own_values.view(-1, dim).to(exact))
        _flush(d_keys, d_k, plan.last)
        _flush(d_values, d_v, plan.last)
        return (
            d_q[:-1].view(q.shape),
            d_k[:-1].view(k.shape).to(k.dtype),
            d_v[:-1].view(v.shape).to(v.dtype),
            None,
            None,
        )


def _buffer(x: Tensor, plan: Plan) -> Tensor:
    return x.new_zeros(x.shape[0], plan.path, x.shape[2])


def _load(buffer: Tensor, rows: Tensor, move: Move | None) -> None:
    """Copies rows [kv_heads * tokens, dim] into the path buffer [kv_heads, path, dim]."""
    if move is not None:
        heads, count = move.rows.shape
        buffer[:, move.columns] = rows.index_select(0, move.rows.flatten()).view(heads, count, -1)


def _flush(gathered: Tensor, into: Tensor, move: Move | None) -> None:
    """Adds gradients [kv_heads, dim, path] of columns to their rows and clears them."""
    if move is not None:
        columns = gathered[:, :, move.columns]
        into.index_add_(0, move.rows.flatten(), columns.transpose(1, 2).flatten(0, 1))
        columns.zero_()


def _own(rows: Tensor, block: Block, kv_heads: int) -> Tensor:
    """Keys or values [kv_heads, segments, width, dim] of batched sub-trees; of a run, none."""
    own = rows.index_select(0, block.key_rows)
    return own.view(kv_heads, block.batched, block.width, rows.shape[1])


def _heads(block: Block, kv_heads: int) -> list[slice]:
    step = block.heads_at_once
    return [slice(head, min(head + step, kv_heads)) for head in range(0, kv_heads, step)]


def _weights(block: Block, q: Tensor, keys: Tensor, own: Tensor, scratch: Tensor) -> Tensor:
    """Attention weights [kv_heads, rows, columns], in `scratch`."""
    scores = _scores(block, q, keys, own, scratch)
    if block.bias is not None:
        per_segment = scores.view(len(q), block.segments, -1, block.width, block.columns)
        per_segment[..., block.first :].add_(block.bias)
    return torch.softmax(scores, dim=-1, out=scores)


def _scores(block: Block, x: Tensor, keys: Tensor, own: Tensor, scratch: Tensor) -> Tensor:
    """Products [kv_heads, rows, columns] of x [kv_heads, rows, dim] with all keys of the block."""
    scores = scratch[: len(x) * block.rows * block.columns].view(len(x), block.rows, block.columns)
    keys = keys[:, : block.path].transpose(1, 2)
    if not block.batched:
        return torch.bmm(x, keys, out=scores)
    local = scores.view(len(x) * block.segments, -1, block.columns)[:, :, block.path :]
    by_segment = x.view(len(local), -1, x.shape[2])
    mine = own.flatten(0, 1).transpose(1, 2)
    if block.path == 0:
        return torch.bmm(by_segment, mine, out=local).view_as(scores)
    for head in range(len(x)):
        torch.mm(x[head], keys[head], out=scores[head, :, : block.path])
    local.copy_(torch.bmm(by_segment, mine))
    return scores


def _apply(block: Block, p: Tensor, values: Tensor, own: Tensor, result: Tensor) -> None:
    """result [kv_heads, rows, dim] = p [kv_heads, rows, columns] times all values of the block."""
    values = values[:, : block.path]
    if not block.batched:
        torch.bmm(p, values, out=result)
        return
    local = p.view(len(p) * block.segments, -1, block.columns)[:, :, block.path :]
    by_segment = result.view(len(local), -1, result.shape[2])
    if block.path == 0:
        torch.bmm(local, own.flatten(0, 1), out=by_segment)
        return
    torch.bmm(p[:, :, : block.path], values, out=result)
    by_segment.baddbmm_(local, own.flatten(0, 1))


def _collect(block: Block, p: Tensor, x: Tensor, gathered: Tensor, own: Tensor) -> None:
    """Adds p^T x to the path's gradients [kv_heads, dim, path], writes it for the own keys."""
    if block.path:
        gathered[:, :, : block.path] += torch.bmm(x.transpose(1, 2), p[:, :, : block.path])
    if block.batched:
        local = p.view(len(p) * block.segments, -1, block.columns)[:, :, block.path :]
        by_segment = x.view(len(local), -1, x.shape[2])
        torch.bmm(local.transpose(1, 2), by_segment, out=own.view(len(local), block.width, -1))
