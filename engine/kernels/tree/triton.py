"""Tree attention in Triton kernels, for NVIDIA GPUs; checked on CPUs in its interpreter only."""

import math
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from engine.kernels.tree import triton_kernels as kernels
from engine.kernels.tree.layout import TreeLayout

LARGEST_DIM = 256


def triton_attention(q: Tensor, k: Tensor, v: Tensor, layout: TreeLayout, scale: float) -> Tensor:
    """q: [heads, tokens, dim]; k, v: [kv_heads, tokens, dim], bf16 or fp32, dim up to 256.

    Returns the shape of q. Raises ValueError on other types and larger heads.
    """
    if q.dtype not in (torch.bfloat16, torch.float32) or q.shape[2] > LARGEST_DIM:
        raise ValueError(
            f"Tree attention got q {tuple(q.shape)} in {q.dtype} on {q.device}; on a GPU it "
            f"takes bf16 and fp32 and heads of at most {LARGEST_DIM}."
        )
    return _Triton.apply(q, k, v, layout, scale)  # type: ignore[no-untyped-call,no-any-return]


def configuration(dim: int, half: bool) -> dict[str, Any]:
    """Tiles and warps that hold heads of `dim` in the shared memory of compute capability 9.0."""
    padded = max(16, triton.next_power_of_2(dim))
    tile = 32 if padded > 128 else 64
    rows = 2 * tile if half and padded <= 128 else tile
    return {
        "D": padded,
        "ROWS": rows,
        "KEYS": tile,
        "HALF": half,
        "num_warps": 8 if padded > 64 else 4,
        "num_stages": 2 if half else 1,
    }


class _Triton(torch.autograd.Function):
    """Saves q, k, v, the output and the logarithm of each row's sum."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: TreeLayout, scale: float
    ) -> Tensor:
        q, k, v = (x.contiguous() for x in (q, k, v))
        heads, tokens, dim = q.shape
        shape = {"GROUP": heads // k.shape[0], **configuration(dim, _half(q))}
        reach = _reach(layout, shape["KEYS"])
        out = torch.empty_like(q)
        lse = q.new_empty(heads, tokens, dtype=torch.float32)
        kernels.attend[triton.cdiv(tokens, shape["ROWS"]), heads](
            q, k, v, out, lse, layout.ends, reach, tokens, dim, scale / math.log(2), **shape
        )
        ctx.save_for_backward(q, k, v, out, lse, layout.ends, reach)
        ctx.scale, ctx.shape = scale, shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, ends, reach = ctx.saved_tensors
        d_out = grads[0].contiguous()
        heads, tokens, dim = q.shape
        shape = ctx.shape
        delta = (out.float() * d_out.float()).sum(-1)
        d_q, d_k, d_v = (torch.empty_like(x) for x in (q, k, v))
        scales = ctx.scale / math.log(2), ctx.scale
        kernels.gradients_of_queries[triton.cdiv(tokens, shape["ROWS"]), heads](
            q, k, v, d_out, lse, delta, d_q, ends, reach, tokens, dim, *scales, **shape
        )
        kernels.gradients_of_keys[triton.cdiv(tokens, shape["KEYS"]), k.shape[0]](
            q, k, v, d_out, lse, delta, d_k, d_v, ends, reach, tokens, dim, *scales, **shape
        )
        return d_q, d_k, d_v, None, None


def _half(q: Tensor) -> bool:
    """Whether bf16 tiles are multiplied as they are; Triton's interpreter cannot."""
    return q.dtype == torch.bfloat16 and q.is_cuda


def _reach(layout: TreeLayout, keys: int) -> Tensor:
    """The largest end in each block of `keys` keys; kept with the layout."""
    name = "reach", keys
    if name not in layout.derived:
        padded = functional.pad(layout.ends, (0, -layout.tokens % keys))
        layout.derived[name] = padded.view(-1, keys).amax(1)
    made: Tensor = layout.derived[name]
    return made
