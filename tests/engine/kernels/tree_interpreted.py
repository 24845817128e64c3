"""Errors of the Triton kernels in Triton's interpreter against the dense mask, as JSON.

The interpreter is chosen when triton is imported, so this runs in a process of its own, with
TRITON_INTERPRET=1: `python -m tests.engine.kernels.tree_interpreted`.
"""

import json
import math

import torch

from engine.kernels.tree import TreeLayout
from engine.kernels.tree.triton import triton_attention
from tests.engine.kernels.tree_cases import (
    chain,
    draw_inputs,
    error,
    oracle,
    outputs_and_gradients,
    star,
)

FORESTS = {
    "one token": ([1], [-1]),
    "packed": ([70, 3, 64], [-1] * 3),
    "star": star(70, [30, 1, 29]),
    "chain of turns": chain([50] + [24] * 3),
    "branches inside branches": ([5, 6, 70, 3, 40], [-1, 0, 1, 0, 3]),
}
HEADS = {"": (2, 2, 16), ", grouped heads of 20": (4, 2, 20)}


def errors(forest: tuple[list[int], list[int]], heads: int, kv_heads: int, dim: int) -> float:
    layout = TreeLayout.build(*forest)
    inputs = draw_inputs(layout.tokens, torch.float32, heads, kv_heads, dim)
    actual = outputs_and_gradients(
        lambda q, k, v: triton_attention(q[0], k[0], v[0], layout, 1 / math.sqrt(dim))[None],
        *inputs,
    )
    return max(error(a, e) for a, e in zip(actual, oracle(layout, inputs), strict=True))


def bf16_error() -> float:
    """Inputs in bf16 are cast on loading, products are in fp32."""
    layout = TreeLayout.build(*FORESTS["star"])
    inputs = draw_inputs(layout.tokens, torch.bfloat16, 2, 2, 16)
    out = triton_attention(*(x[0] for x in inputs[:3]), layout, 0.25)
    return error(out[None], oracle(layout, inputs)[0])


if __name__ == "__main__":
    found = {
        name + suffix: errors(forest, *shape)
        for name, forest in FORESTS.items()
        for suffix, shape in HEADS.items()
    }
    print(json.dumps({**found, "bf16": bf16_error()}))
