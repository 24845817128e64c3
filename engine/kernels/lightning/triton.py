"""Lightning attention in Triton kernels, for NVIDIA GPUs; checked on CPUs in its interpreter only.

Where a kernel of `chunked` works tile by tile, one launch here covers all pieces and heads. The
scan over the states takes one launch for each generation of a tree, one in all without parents.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from engine.kernels.lightning import arguments
from engine.kernels.lightning import triton_kernels as kernels
from engine.kernels.lightning.packing import GPU_CHUNK, Packing, Rows

LARGEST_DIM = 256
SCAN_BLOCK = 1024
STATE_COLUMNS = 64  # of a state, held by one program


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
) -> tuple[Tensor, Tensor]:
    """`operation.lightning_attention` for bf16 and fp32 inputs, head dims up to 256.

    All is computed in fp32: products of fp32 inputs exactly, of bf16 inputs in TF32, which holds
    more digits than they have.
    """
    pack = arguments.check(q, k, v, slopes, initial_state, lengths, cu_seqlens, parents, packing)
    _check_device(q)
    if q.dtype == torch.float64:
        raise TypeError(f"q {list(q.shape)} is {q.dtype}: the Triton kernels take bf16 and fp32")
    if max(q.shape[3], v.shape[3]) > LARGEST_DIM:
        raise ValueError(
            f"q {list(q.shape)}, v {list(v.shape)}: the Triton kernels hold head dims of at most "
            f"{LARGEST_DIM}; take implementation='chunked'"
        )
    if pack is not None and pack.chunk > GPU_CHUNK:
        raise ValueError(
            f"the packing has chunks of {pack.chunk} tokens, for q {list(q.shape)}: the Triton "
            f"kernels hold {GPU_CHUNK}; make it with chunk={GPU_CHUNK}"
        )
    grid = _dense(q, lengths) if pack is None else _packed(pack)
    if initial_state is None:
        shape = grid.roots, q.shape[1], q.shape[3], v.shape[3]
        initial_state = q.new_zeros(shape, dtype=torch.float32)
    elif pack is not None and grid.roots < pack.nodes:
        initial_state = initial_state.index_select(0, pack.roots)
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    return _Triton.apply(q, k, v, initial_state, slopes.float(), grid)  # type: ignore[no-untyped-call, no-any-return]


@dataclass(frozen=True)
class _Grid:
    """The pieces of a batch: tokens starts to starts + sizes of row (piece % batch)."""

    starts: Tensor  # [pieces]
    sizes: Tensor  # [pieces], true tokens, at most `chunk`
    before: Tensor  # [pieces], row of the state that enters; rows are roots, then pieces
    first: Tensor  # [N], first piece of a node (a row of the dense form)
    count: Tensor  # [N], its pieces: first, first + step, ...
    step: int
    batch: int
    roots: int
    chunk: int
    root_nodes: Rows
    final: Rows  # [N], rows of the states after the nodes
    generations: tuple[Tensor, ...]
    children: Tensor
    first_child: Tensor
    padded: bool  # whether some tokens are in no piece

    def empty_like(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x) if self.padded else torch.empty_like(x)


def _dense(q: Tensor, lengths: Tensor | None) -> _Grid:
    batch, _, tokens, _ = q.shape
    chunk = min(GPU_CHUNK, _block(tokens))
    chunks = -(-tokens // chunk)
    pieces = torch.arange(chunks * batch, device=q.device)
    starts = pieces // batch * chunk
    true = q.new_full((batch,), tokens, dtype=torch.long) if lengths is None else lengths
    rows = torch.arange(batch, device=q.device)
    return _Grid(
        starts=starts,
        sizes=(true.repeat(chunks) - starts).clamp(0, chunk),
        before=pieces,
        first=rows,
        count=torch.full_like(rows, chunks),
        step=batch,
        batch=batch,
        roots=batch,
        chunk=chunk,
        root_nodes=slice(None),
        final=slice(chunks * batch, None),
        generations=(rows,),
        children=rows[:0],
        first_child=rows.new_zeros(batch + 1),
        padded=lengths is not None,
    )


def _packed(pack: Packing) -> _Grid:
    roots = len(pack.roots)
    return _Grid(
        starts=pack.starts,
        sizes=pack.sizes,
        before=pack.before,
        first=pack.first,
        count=pack.first.diff(),
        step=1,
        batch=1,
        roots=roots,
        chunk=_block(pack.chunk),
        root_nodes=pack.roots,
        final=pack.first[1:] - 1 + roots,
        generations=pack.generations,
        children=pack.children,
        first_child=pack.first_child,
        padded=False,
    )


def _block(size: int) -> int:
    """The side of a block that holds `size`: a power of two that `tl.dot` takes."""
    return max(16, 1 << (size - 1).bit_length())


def _check_device(q: Tensor) -> None:
    interpreted = bool(triton.knobs.runtime.interpret)
    if q.device.type != "cuda" and not interpreted:
        raise ValueError(
            f"q {list(q.shape)} is on {q.device}: implementation='triton' needs an NVIDIA GPU, "
            "or TRITON_INTERPRET=1 before the start; take implementation='chunked'"
        )
    if interpreted and q.dtype == torch.bfloat16:
        raise TypeError(f"q {list(q.shape)} is bf16, which Triton's interpreter rounds wrongly")


class _Triton(torch.autograd.Function):
    """Saves q, k, v and the states at chunk borders; the scores are computed again."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, initial: Tensor, slopes: Tensor, grid: _Grid
    ) -> tuple[Tensor, Tensor]:
        pieces = len(grid.sizes)
        states = initial.new_empty(grid.roots + pieces, *initial.shape[1:])
        states[: grid.roots] = initial
        shape = _shape(q, v, grid)
        launch = pieces, q.shape[1], triton.cdiv(v.shape[3], shape["E"])
        kernels.products_of_tokens[launch](
            *_strided(k, v), states[grid.roots :], slopes, grid.starts, grid.sizes,
            grid.batch, *_sizes(q, v), OF_KEYS=True, **shape,
        )  # fmt: skip
        elements = states[0, 0].numel()
        for nodes in grid.generations:
            kernels.scan[len(nodes), q.shape[1], triton.cdiv(elements, SCAN_BLOCK)](
                states, slopes, grid.sizes, grid.before, nodes, grid.first, grid.count,
                grid.step, grid.roots, q.shape[1], elements, BLOCK=SCAN_BLOCK,
            )  # fmt: skip
        output = grid.empty_like(v)
        kernels.outputs[launch](
            *_strided(q, k, v, output), states, slopes, grid.starts, grid.sizes, grid.before,
            grid.batch, *_sizes(q, v), **shape,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, states, slopes)
        ctx.grid = grid
        ctx.set_materialize_grads(False)
        return output, states[grid.final].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, states, slopes = ctx.saved_tensors
        grid: _Grid = ctx.grid
        d_output, d_final = grads
        d_output = torch.zeros_like(v) if d_output is None else d_output
        if d_output.stride(3) != 1:
            d_output = d_output.contiguous()
        d_after = torch.empty_like(states[grid.roots :])
        shape = _shape(q, v, grid)
        launch = len(grid.sizes), q.shape[1], triton.cdiv(v.shape[3], shape["E"])
        kernels.products_of_tokens[launch](
            *_strided(q, d_output), d_after, slopes, grid.starts, grid.sizes,
            grid.batch, *_sizes(q, v), OF_KEYS=False, **shape,
        )  # fmt: skip
        entering = states.new_empty(len(grid.count), *states.shape[1:])
        last = entering if d_final is None else d_final.contiguous()
        elements = states[0, 0].numel()
        for nodes in reversed(grid.generations):
            kernels.scan_back[len(nodes), q.shape[1], triton.cdiv(elements, SCAN_BLOCK)](
                d_after, last, entering, slopes, grid.sizes, nodes, grid.first, grid.count,
                grid.step, grid.children, grid.first_child, q.shape[1], elements,
                FINAL=d_final is not None, BLOCK=SCAN_BLOCK,
            )  # fmt: skip
        d_q, d_k, d_v = (grid.empty_like(x) for x in (q, k, v))
        kernels.gradients_of_queries_and_keys[launch[:2]](
            *_strided(q, k, v, d_output, d_q, d_k), states, d_after, slopes, grid.starts,
            grid.sizes, grid.before, grid.batch, *_sizes(q, v), **shape,
        )  # fmt: skip
        kernels.gradients_of_values[launch](
            *_strided(q, k, d_output, d_v), d_after, slopes, grid.starts, grid.sizes,
            grid.batch, *_sizes(q, v), **shape,
        )  # fmt: skip
        return d_q, d_k, d_v, entering[grid.root_nodes], None, None


def configuration(dim: int, width: int, dtype: torch.dtype) -> dict[str, Any]:
    """Tiles and warps for keys of `dim` and values of `width`, the same for all kernels."""
    padded = _block(dim)
    return {
        "D": padded,
        "E": min(STATE_COLUMNS, _block(width)),
        "PRECISION": "tf32" if dtype == torch.bfloat16 else "ieee",
        "num_warps": 4 if padded <= 64 else 8,
        "num_stages": 1,
    }


def _shape(q: Tensor, v: Tensor, grid: _Grid) -> dict[str, Any]:
    return {"C": grid.chunk, **configuration(q.shape[3], v.shape[3], q.dtype)}


def _sizes(q: Tensor, v: Tensor) -> tuple[int, int, int]:
    return q.shape[1], q.shape[3], v.shape[3]


def _strided(*tensors: Tensor) -> list[Any]:
    """Each tensor with its strides (batch, heads, tokens)."""
    return [part for x in tensors for part in (x, *x.stride()[:3])]
