"""Errors of the Triton kernels in Triton's interpreter against the fp64 recurrence, as JSON.

The interpreter is chosen when triton is imported, so this runs in a process of its own, with
TRITON_INTERPRET=1: `python -m tests.engine.kernels.lightning_interpreted`.
"""

import json
import tempfile

import torch
from torch import Tensor

from engine.kernels.lightning import lightning_attention, reference
from tests.engine.kernels.lightning_cases import (
    SLOPES,
    double,
    head_error,
    inputs,
    outputs_and_gradients,
)

NAMES = ["output", "final state", "dq", "dk", "dv", "dS_in"]
LENGTHS = [1, 63, 64, 65, 255, 257]
CU = torch.tensor([0, 40, 41, 105, 200])


def in_triton(*tensors: Tensor, **form) -> tuple[Tensor, Tensor]:
    return lightning_attention(*tensors, implementation="triton", **form)


def cases() -> dict[str, tuple[list[Tensor], dict]]:
    """Inputs and form of every case, in fp32."""

    def small(tokens: int, **options) -> list[Tensor]:
        return inputs(tokens, torch.float32, heads=2, **options)

    found: dict[str, tuple[list[Tensor], dict]] = {
        f"{tokens} tokens": (small(tokens), {}) for tokens in LENGTHS
    }
    found["two rows, head dim 20, values of 24"] = small(70, batch=2, dim=20, width=24), {}
    found["head dim 64, values of 80"] = small(70, dim=64, width=80), {}
    padded = small(90, batch=3)
    lengths = torch.tensor([90, 3, 64])
    for x in padded[:3]:
        for row, length in enumerate(lengths.tolist()):
            x[row, :, length:] = torch.nan
    found["tails of NaN"] = padded, {"lengths": lengths}
    found["packed"] = small(200, states=4), {"cu_seqlens": CU}
    for name, parents in {"tree": [-1, 0, 0, 2], "forest": [-1, 0, -1, 2]}.items():
        form = {"cu_seqlens": CU, "parents": torch.tensor(parents)}
        found[name] = small(200, states=4), form
    return found


def errors(tensors: list[Tensor], form: dict) -> dict[str, float]:
    slopes = SLOPES[1:3]
    actual = outputs_and_gradients(in_triton, tensors, slopes, **form)
    expected = outputs_and_gradients(reference.lightning_attention, double(tensors), slopes, **form)
    assert all(bool(torch.isfinite(x).all()) for x in actual)
    return {n: head_error(a, e) for n, a, e in zip(NAMES, actual, expected, strict=True)}


def model_views() -> float:
    """Error for q, k, v that are views of one projection, as the model gives them."""
    joint = torch.randn(2, 70, 2, 48, generator=torch.Generator().manual_seed(1))
    q, k, v = (x.transpose(1, 2) for x in joint.chunk(3, dim=-1))
    actual, _ = in_triton(q, k, v, SLOPES[1:3])
    expected, _ = reference.lightning_attention(q, k, v, SLOPES[1:3])
    return head_error(actual, expected)


def far_heads() -> float:
    """Error where a head begins over 2^31 elements after the first, as 64 heads of 262,144 tokens
    do; the memory between is a hole in a file."""
    apart, tokens, dim = 2**30, 20, 16
    with tempfile.NamedTemporaryFile() as file:
        room = torch.from_file(file.name, shared=True, size=2 * apart + 4096, dtype=torch.float32)
        generator = torch.Generator().manual_seed(1)
        parts = []
        for start in (0, 1024, 2048):
            part = room.as_strided((1, 3, tokens, dim), (0, apart, dim, 1), start)
            parts.append(part.copy_(torch.randn(part.shape, generator=generator)))
        actual, _ = in_triton(*parts, SLOPES[:3])
        expected, _ = reference.lightning_attention(*parts, SLOPES[:3])
    return head_error(actual, expected)


if __name__ == "__main__":
    measured = {name: errors(*case) for name, case in cases().items()}
    measured["views of one projection"] = {"output": model_views()}
    measured["heads far apart"] = {"output": far_heads()}
    print(json.dumps(measured))
