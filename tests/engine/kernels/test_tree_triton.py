"""The Triton kernels: their numbers in Triton's interpreter, and their code for an NVIDIA GPU."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.kernels.tree import TreeLayout
from tests.engine.kernels.tree_cases import draw_inputs

ROOT = Path(__file__).parents[3]
SHARED_BYTES = 227 * 1024  # of a block, on compute capability 9.0
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton exists for Linux only"
)


def test_it_equals_the_dense_mask_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.kernels.tree_interpreted"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert errors.pop("bf16") < 0.01
    assert len(errors) == 10 and all(error < 1e-5 for error in errors.values()), errors


@pytest.mark.parametrize("kernel", ["attend", "gradients_of_queries", "gradients_of_keys"])
def test_it_compiles_for_a_gpu_and_fits_its_shared_memory(kernel: str) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from engine.kernels.tree import triton_kernels
    from engine.kernels.tree.triton import configuration

    function = getattr(triton_kernels, kernel)
    constants = {"GROUP": 2, **configuration(64, half=True)}
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    types = {"lse": "*fp32", "delta": "*fp32", "ends": "*i64", "reach": "*i64"}
    types |= {"tokens": "i32", "dim": "i32", "scale": "fp32", "natural_scale": "fp32"}
    names = function.arg_names
    source = ASTSource(
        fn=function,
        signature={n: "constexpr" if n in constants else types.get(n, "*bf16") for n in names},
        constexprs={(names.index(n),): value for n, value in constants.items()},
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert made.asm["cubin"] and made.metadata.shared < SHARED_BYTES


def test_it_refuses_types_and_heads_it_cannot_hold() -> None:
    from engine.kernels.tree.triton import triton_attention

    layout = TreeLayout.build([4], [-1])
    for dtype, dim in ((torch.float64, 8), (torch.float32, 300)):
        q, k, v, _ = (x[0] for x in draw_inputs(4, dtype, dim=dim))
        with pytest.raises(ValueError, match=rf"q \(2, 4, {dim}\) in {dtype}"):
            triton_attention(q, k, v, layout, 1.0)
