"""Exact softmax attention over a forest of prefix trees: the one entry for every device."""

import math

import torch
from torch import Tensor

from engine.kernels.tree.blocked import blocked_attention
from engine.kernels.tree.layout import TreeLayout

TYPES = torch.float64, torch.float32, torch.bfloat16


def tree_attention(
    q: Tensor, k: Tensor, v: Tensor, layout: TreeLayout, *, scale: float | None = None
) -> Tensor:
    """Attention of every token to itself and to the tokens before it in its own sequence.

    q: [1, heads, tokens, dim]; k, v: [1, kv_heads, tokens, dim], kv_heads a divisor of heads;
    fp64, fp32 or bf16. Returns the shape of q. scale: 1 / sqrt(dim) by default. Equal to
    unmerged sequences each alone, to rounding, and so are the gradients; differentiable once.
    Raises ValueError on shapes, types or devices that do not fit each other.
    """
    _check(q, k, v, layout)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    q, k, v = (x.squeeze(0) for x in (q, k, v))
    if q.is_cuda:
        from engine.kernels.tree.triton import triton_attention  # there is none on other systems

        return triton_attention(q, k, v, layout, scale).unsqueeze(0)
    return blocked_attention(q, k, v, layout, scale).unsqueeze(0)


def _check(q: Tensor, k: Tensor, v: Tensor, layout: TreeLayout) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if any(x.dim() != 4 or x.shape[0] != 1 for x in (q, k, v)):
        raise ValueError(f"Tree attention got {shapes}; expected [1, heads, tokens, dim].")
    if k.shape != v.shape or q.shape[2:] != k.shape[2:]:
        raise ValueError(
            f"Tree attention got {shapes}; k and v need one shape, and tokens and dim of q."
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"Tree attention got {shapes}; heads of k must divide those of q.")
    if q.shape[2] != layout.tokens:
        raise ValueError(
            f"Tree attention got {shapes} and a layout of {layout.tokens} tokens; "
            "the layout must be that of the batch."
        )
    if not q.dtype == k.dtype == v.dtype or q.dtype not in TYPES:
        raise ValueError(
            f"Tree attention got q {q.dtype}, k {k.dtype}, v {v.dtype}; "
            "give all three in fp64, fp32 or bf16."
        )
    devices = {x.device for x in (q, k, v, layout.ends)}
    if len(devices) > 1 or q.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"Tree attention got q on {q.device}, k on {k.device}, v on {v.device} and a layout "
            f"on {layout.ends.device}; move all to the CPU or to one NVIDIA GPU."
        )
