"""What lightning attention accepts, checked once for all implementations."""

import torch
from torch import Tensor

from engine.kernels.lightning.packing import Packing, packing

TYPES = (torch.float64, torch.float32, torch.bfloat16)


def state_type(inputs: torch.dtype) -> torch.dtype:
    """fp32, or fp64 beside fp64 inputs: slow heads are lost in lower precision."""
    return torch.float64 if inputs == torch.float64 else torch.float32


def check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    initial_state: Tensor | None,
    lengths: Tensor | None,
    cu_seqlens: Tensor | None,
    parents: Tensor | None,
    pack: Packing | None,
) -> Packing | None:
    """The packing of the packed form, None for the dense one.

    Raises TypeError for a wrong precision and ValueError for shapes that do not fit together.
    """
    _check_inputs(q, k, v, slopes)
    batch, heads, tokens, dim = q.shape
    if pack is not None and (cu_seqlens is not None or parents is not None):
        raise ValueError("packing stands for cu_seqlens and parents: give one or the other")
    if cu_seqlens is None and parents is not None:
        raise ValueError(
            f"parents (shape {list(parents.shape)}) need cu_seqlens, the borders of the nodes"
        )
    if cu_seqlens is not None:
        pack = packing(cu_seqlens, parents, chunk=dim, device=q.device)
    if pack is not None:
        _check_pack(q, pack, lengths)
    if lengths is not None and lengths.shape != (batch,):
        raise ValueError(
            f"lengths has shape {list(lengths.shape)}: it must be [{batch}], one for each row of "
            f"q {list(q.shape)}"
        )
    rows = batch if pack is None else pack.nodes
    if initial_state is not None:
        _check_state(initial_state, (rows, heads, dim, v.shape[-1]), q.dtype)
    return pack


def _check_inputs(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> None:
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if q.dim() != 4 or k.shape != q.shape or v.shape[:-1] != q.shape[:-1]:
        raise ValueError(
            f"{shapes}: q and k must both be [batch, heads, tokens, dim], v may have another width"
        )
    if q.dtype not in TYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise TypeError(
            f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: they must all be bf16, fp32 or fp64"
        )
    if 0 in q.shape or v.shape[-1] == 0:
        raise ValueError(f"{shapes}: there must be at least one token, head and dim")
    if slopes.shape != q.shape[1:2]:
        raise ValueError(
            f"slopes has shape {list(slopes.shape)}: it must be [{q.shape[1]}], one for each head "
            f"of q {list(q.shape)}"
        )
    if slopes.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"slopes are {slopes.dtype}: they must be fp32, or slow heads never forget")


def _check_pack(q: Tensor, pack: Packing, lengths: Tensor | None) -> None:
    if q.shape[0] != 1:
        raise ValueError(
            f"q {list(q.shape)} has {q.shape[0]} rows: the packed form takes one row that holds "
            "all sequences"
        )
    if lengths is not None:
        raise ValueError("lengths belong to the dense form: cu_seqlens say how long sequences are")
    if pack.tokens != q.shape[2]:
        raise ValueError(
            f"cu_seqlens end at {pack.tokens}, but q {list(q.shape)} has {q.shape[2]} tokens"
        )
    if pack.starts.device != q.device:
        raise ValueError(
            f"the packing is on {pack.starts.device} and q on {q.device}: move it with .to(device)"
        )


def _check_state(state: Tensor, shape: tuple[int, ...], inputs: torch.dtype) -> None:
    if state.dtype != state_type(inputs):
        raise TypeError(
            f"initial_state is {state.dtype}; beside {inputs} inputs it must be "
            f"{state_type(inputs)}: slow heads are lost in lower precision"
        )
    if state.shape != shape:
        raise ValueError(
            f"initial_state has shape {list(state.shape)}: it must be {list(shape)}, "
            "[batch or nodes, heads, dim of k, dim of v]"
        )
