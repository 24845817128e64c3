"""Triton kernels compiled for a GPU that is not here, as far as machine code goes.

It shows that they compile and how much shared memory they ask for, not that they are right.
"""

from collections.abc import Iterator
from typing import Any

import torch

from engine.kernels.lightning.packing import GPU_CHUNK

SHARED_BYTES = 227 * 1024  # of a block, on compute capability 9.0
TARGET = ("cuda", 90, 32)  # H100, H200
TYPES = {  # of arguments by name; the others are int32
    "*bf16": "a b q k v o do dq dk dv out d_out d_q d_k d_v",
    "*i64": "starts sizes before nodes first count children first_child ends reach",
    "*fp32": "states slopes target reads d_final d_after entering lse delta",
    "fp32": "scale natural_scale",
}
OPTIONS = ("num_warps", "num_stages")


def kernels(dim: int) -> Iterator[tuple[str, int]]:
    """Name and shared bytes of every kernel of the engine, for bf16 heads of `dim`.

    Raises what Triton raises where a kernel does not compile.
    """
    from engine.kernels.lightning import triton as lightning
    from engine.kernels.lightning import triton_kernels as of
    from engine.kernels.tree import triton as tree
    from engine.kernels.tree import triton_kernels as of_trees

    shape = {"C": GPU_CHUNK, **lightning.configuration(dim, dim, torch.bfloat16)}
    scan = {"BLOCK": lightning.SCAN_BLOCK, "num_warps": 4}
    for kernel, constants in (
        (of.products_of_tokens, {**shape, "OF_KEYS": True}),
        (of.scan, scan),
        (of.scan_back, {**scan, "FINAL": True}),
        (of.outputs, shape),
        (of.gradients_of_queries_and_keys, shape),
        (of.gradients_of_values, shape),
        *(
            (kernel, {"GROUP": 4, **tree.configuration(dim, True)})
            for kernel in (
                of_trees.attend,
                of_trees.gradients_of_queries,
                of_trees.gradients_of_keys,
            )
        ),
    ):
        yield kernel.__name__, _shared_bytes(kernel, constants)


def _shared_bytes(kernel: Any, constants: dict[str, Any]) -> int:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options = {name: value for name, value in constants.items() if name in OPTIONS}
    constants = {name: value for name, value in constants.items() if name not in OPTIONS}
    names = kernel.arg_names
    source = ASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else _type(name) for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    made = triton.compile(source, target=GPUTarget(*TARGET), options=options)
    assert made.asm["cubin"]
    return int(made.metadata.shared)


def _type(name: str) -> str:
    return next((kind for kind, names in TYPES.items() if name in names.split()), "i32")
