"""The GPU benchmark where there is no GPU: it says so in every figure, and compiles ahead."""

import importlib.util

import pytest
import torch

from bench import gpu
from bench.figures import Figure, Options


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_figures_that_need_a_gpu_are_null_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "compiled", lambda: [])
    figures = gpu.run(Options())
    assert {figure.metric for figure in figures} == {
        *gpu.EXACT,
        *gpu.TREE,
        "lightning_vs_sdpa_64k",
        "lightning_vs_fla_32k",
        "tree_vs_flex",
    }
    assert all(f.value is None and not f.passed and f.setup == gpu.NO_GPU for f in figures)


def test_a_part_that_fails_is_a_null_figure_and_the_next_part_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> list[Figure]:
        raise RuntimeError("out of memory\nmany lines")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "compiled", lambda: [])
    monkeypatch.setattr(gpu, "exactness", fails)
    for name in ("tree_exactness", "against_softmax", "against_fla", "against_flex"):
        monkeypatch.setattr(gpu, name, lambda name=name: [gpu._figure(name, 1.0, "x")])
    figures = {figure.metric: figure for figure in gpu.run(Options())}
    assert figures["exactness_bf16"].setup == "RuntimeError: out of memory"
    assert figures["against_flex"].value == 1


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is Linux only")
def test_every_kernel_compiles_for_a_gpu_that_is_not_here() -> None:
    from bench import _compile_ahead as ahead
    from engine.kernels.lightning import triton_kernels as lightning
    from engine.kernels.tree import triton_kernels as tree

    compiled = dict(ahead.kernels(16))
    kernels = {
        name
        for module in (lightning, tree)
        for name, value in vars(module).items()
        if hasattr(value, "arg_names") and not name.startswith("_")
    }
    assert set(compiled) == kernels
    assert all(shared <= ahead.SHARED_BYTES for shared in compiled.values())
