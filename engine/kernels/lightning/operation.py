"""The one operation: lightning attention over dense, packed or tree-shaped batches."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from engine.kernels.lightning import chunked
from engine.kernels.lightning.packing import Packing

Implementation = Literal["auto", "chunked", "triton"]


def lightning_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    *,
    initial_state: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    parents: Tensor | None = None,
    packing: Packing | None = None,
    implementation: Implementation = "auto",
) -> tuple[Tensor, Tensor]:
    """o_t = q_t^T S_t with S_t = exp(-slope) S_{t-1} + k_t v_t^T per head (MiniMax-01, 2501.08313).

    The current token is not decayed; there is no scale and no normaliser.

    q, k: [batch, heads, tokens, dim] and v: [batch, heads, tokens, e], all bf16, fp32 or fp64.
    slopes: [heads], fp32, >= 0, constants without a gradient.
    initial_state: [batch, heads, dim, e] (key dim first), zero if absent; states are fp32, fp64
    beside fp64 inputs.

    Dense form: every row is a sequence; lengths [batch] are true lengths under right padding. What
    stands past them is never read into a product, so that it may be anything, NaN included. (Left
    padding needs k or v of pads to be zero, and no initial state; packing needs no pads at all.)

    Packed form: batch is 1 and holds N sequences, sequence i the tokens cu_seqlens[i] to
    cu_seqlens[i + 1]; states are [N, heads, dim, e]. With parents [N] (parents[i] < i, or -1) they
    are the nodes of prefix trees: a node starts from the final state of its parent, a root from
    initial_state. Rows of initial_state for other nodes are ignored and get no gradient.
    `packing` stands for both; made once, it serves all layers.

    Returns the output (type of q, zero on pads) and the state after the last true token of each
    row or node. Differentiable once in q, k, v and initial_state, from gradients of both results.
    Raises ValueError or TypeError, with shapes, for arguments that do not fit together.

    implementation: "triton" needs an NVIDIA GPU (or Triton's interpreter), "chunked" is plain
    torch, "auto" takes Triton for bf16 and fp32 tensors on a GPU.
    """
    return _attention(implementation, q)(
        q,
        k,
        v,
        slopes,
        initial_state=initial_state,
        lengths=lengths,
        cu_seqlens=cu_seqlens,
        parents=parents,
        packing=packing,
    )


def _attention(implementation: str, q: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
    if implementation == "auto":
        on_gpu = q.device.type == "cuda" and q.dtype != torch.float64
        implementation = "triton" if on_gpu else "chunked"
    if implementation == "chunked":
        return chunked.lightning_attention
    if implementation != "triton":
        raise ValueError(
            f"implementation is {implementation!r}: it must be auto, chunked or triton"
        )
    try:
        from engine.kernels.lightning import triton
    except ImportError as error:
        raise ValueError(
            "implementation='triton' needs the package triton: install requirements/gpu.txt, or "
            "take implementation='chunked'"
        ) from error
    return triton.lightning_attention
