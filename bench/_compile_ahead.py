"""Triton kernels compiled for a GPU that is not here, as far as machine code goes.

It shows that they compile and how much shared memory they ask for, not that they are right.
"""

from collections.abc import Iterator
from typing import Any

SHARED_BYTES = 227 * 1024  # of a block, on compute capability 9.0
TARGET = ("cuda", 90, 32)  # H100, H200
TOKENS = frozenset({"a", "b", "q", "k", "v", "o", "do", "dq", "dk", "dv"})
TABLES = frozenset({"starts", "sizes", "before", "nodes", "first", "count"}) | {
    "children",
    "first_child",
}
STATES = frozenset({"states", "slopes", "target", "reads", "d_final", "d_after", "entering"})


def lightning_kernels(dim: int) -> Iterator[tuple[str, int]]:
    """Name and shared bytes of every kernel of lightning attention, for bf16 heads of `dim`.

    Raises what Triton raises where a kernel does not compile.
    """
    from engine.kernels.lightning import triton_kernels as kernels

    shape = {"C": 64, "D": dim, "E": 64, "PRECISION": "tf32"}
    for kernel, constants in (
        (kernels.products_of_tokens, {**shape, "OF_KEYS": True}),
        (kernels.products_of_tokens, {**shape, "OF_KEYS": False}),
        (kernels.scan, {"BLOCK": 1024}),
        (kernels.scan_back, {"BLOCK": 1024, "FINAL": True}),
        (kernels.outputs, shape),
        (kernels.gradients_of_queries_and_keys, shape),
        (kernels.gradients_of_values, shape),
    ):
        yield kernel.__name__, _shared_bytes(kernel, constants, 4 if dim <= 64 else 8)


def _shared_bytes(kernel: Any, constants: dict[str, Any], warps: int) -> int:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    source = ASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else _type(name) for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    options = {"num_warps": warps, "num_stages": 1}
    made = triton.compile(source, target=GPUTarget(*TARGET), options=options)
    assert made.asm["cubin"]
    return int(made.metadata.shared)


def _type(name: str) -> str:
    if name in TOKENS:
        return "*bf16"
    if name in TABLES:
        return "*i64"
    return "*fp32" if name in STATES else "i32"
