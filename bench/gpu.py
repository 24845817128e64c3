"""The kernels on one NVIDIA GPU: exactness against fp64, speed beside SDPA, fla, FlexAttention.

At most 8 minutes. Without a GPU, figures are null with the reason, and what can be shown is shown:
that the Triton kernels compile to machine code for one.
"""

import importlib.util
import time
from collections.abc import Callable
from functools import partial

import torch

from bench.figures import Figure, Options, measured

_figure = partial(measured, "gpu")

LIMIT_S = 480
NO_GPU = "no NVIDIA GPU here: the Triton kernels are checked in the interpreter only"
SDPA = "torch scaled_dot_product_attention, causal"
Part = Callable[[], list[Figure]]
COMPILED = ("kernels_compiled", "kernels_shared_memory")
EXACT = ("exactness_bf16", "exactness_fp32", "exactness_packed_fp32", "exactness_tree_fp32")
TREE = ("tree_attention_exactness_bf16", "tree_attention_exactness_fp32")


def run(options: Options) -> list[Figure]:
    del options
    parts: dict[tuple[str, ...], Part] = {
        COMPILED: compiled,
        EXACT: exactness,
        TREE: tree_exactness,
        ("lightning_vs_sdpa_64k",): against_softmax,
        ("lightning_vs_fla_32k",): against_fla,
        ("tree_vs_flex",): against_flex,
    }
    figures: list[Figure] = []
    began = time.monotonic()
    for metrics, part in parts.items():
        if part is not compiled and not torch.cuda.is_available():
            figures += _missing(metrics, NO_GPU)
        elif time.monotonic() - began > LIMIT_S:
            figures += _missing(metrics, f"the parts before took all of {LIMIT_S} s")
        else:
            try:
                figures += part()
            except Exception as error:  # said in the figure; the next part may still run
                figures += _missing(metrics, f"{type(error).__name__}: {error}".splitlines()[0])
    return figures


def compiled() -> list[Figure]:
    """Kernels that become machine code for compute capability 9.0, without a GPU."""
    if importlib.util.find_spec("triton") is None:
        return _missing(COMPILED, "triton is not installed: requirements/gpu.txt")
    from bench import _compile_ahead as ahead

    kernels = list(ahead.kernels(128))
    most = max(shared for _, shared in kernels)
    setup = f"lightning and tree attention, bf16 heads of 128, for sm_{ahead.TARGET[1]}"
    return [
        _figure("kernels_compiled", len(kernels), "kernels", setup=setup),
        _figure("kernels_shared_memory", most, "B", f"at most {ahead.SHARED_BYTES}", setup=setup),
    ]


def exactness() -> list[Figure]:
    from bench import _gpu_cases as cases

    borders = torch.tensor([0, 1, 64, 129, 1042, 1642, 1899])
    parents = torch.tensor([-1, 0, 0, 1, 3, 3])
    packed, tree = {"cu_seqlens": borders}, {"cu_seqlens": borders, "parents": parents}
    figures = []
    for metric, bar, setup, errors in (
        (EXACT[0], "at most 0.01", "8,192 tokens, 64 heads of 128, bf16",
         cases.exactness(8192, 64, 128, torch.bfloat16, {})),
        (EXACT[1], "at most 0.00001", "913 tokens, 4 heads of 64, fp32",
         cases.exactness(913, 4, 64, torch.float32, {})),
        (EXACT[2], "at most 0.00001", "6 sequences of 1 to 913 tokens, fp32",
         cases.exactness(1899, 4, 64, torch.float32, packed)),
        (EXACT[3], "at most 0.00001", "a tree of 6 nodes of 1 to 913 tokens, fp32",
         cases.exactness(1899, 4, 64, torch.float32, tree)),
    ):  # fmt: skip
        each = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
        figures.append(_figure(metric, max(errors.values()), "", bar, setup=f"{setup}; {each}"))
    return figures


def tree_exactness() -> list[Figure]:
    from bench import _gpu_cases as cases

    figures = []
    for metric, bar, dtype in zip(
        TREE, ("at most 0.01", "at most 0.00001"), (torch.bfloat16, torch.float32), strict=True
    ):
        errors = cases.tree_exactness(cases.turns(1024, 33, 16, 2), dtype)
        each = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
        setup = f"1,024 tokens, then 2 chains of 16 turns of 33; 8 heads of 128; {each}"
        figures.append(_figure(metric, max(errors.values()), "", bar, setup=setup))
    return figures


def against_softmax() -> list[Figure]:
    from bench import _gpu_cases as cases

    tokens = 65536
    calls = {"ours": cases.lightning(tokens), "peer": cases.softmax(tokens)}
    return [_speed("lightning_vs_sdpa_64k", calls, "at least 8", SDPA, "64 heads of 128")]


def against_fla() -> list[Figure]:
    from bench import _gpu_cases as cases

    if importlib.util.find_spec("fla") is None:
        return _missing(("lightning_vs_fla_32k",), "fla is not installed")
    calls = {"ours": cases.lightning(32768), "peer": cases.fla(32768)}
    peer = "fla chunk_simple_gla, our decay, scale 1"
    return [_speed("lightning_vs_fla_32k", calls, "at least 0.9", peer, "64 heads of 128")]


def against_flex() -> list[Figure]:
    from bench import _gpu_cases as cases

    layout = cases.turns(8192, 256, 32, 2)
    calls = {"ours": cases.tree(layout), "peer": cases.flex(layout)}
    setup = "8,192 tokens, then 2 chains of 32 turns of 256; 8 heads of 128"
    return [_speed("tree_vs_flex", calls, "", "compiled FlexAttention", setup)]


def _speed(
    metric: str, calls: dict[str, Callable[[], object]], bar: str, peer: str, setup: str
) -> Figure:
    from bench import _gpu_cases as cases

    times = cases.milliseconds(calls)
    setup = f"forward and backward, bf16, {setup}: {times['ours']:.2f} ms"
    setup += f" against {times['peer']:.2f} ms on {torch.cuda.get_device_name()}"
    return _figure(metric, times["peer"] / times["ours"], "x", bar, peer=peer, setup=setup)


def _missing(metrics: tuple[str, ...], reason: str) -> list[Figure]:
    return [_figure(metric, None, "", setup=reason) for metric in metrics]
