"""Forests, inputs and the dense-mask oracle that the tests of tree attention share."""

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from engine.kernels.tree import TreeLayout

Forest = tuple[list[int], list[int]]


@st.composite
def forests(draw: st.DrawFn, longest: int | None = None) -> Forest:
    """A node hangs on the path to the one before it; lengths from one token to several blocks."""
    longest = draw(st.sampled_from([1, 6, 40, 300])) if longest is None else longest
    lengths = draw(st.lists(st.integers(1, longest), min_size=1, max_size=14))
    stay = draw(st.sampled_from([0, 1, 3]))  # how far from the last node the next may hang
    parents: list[int] = []
    path: list[int] = []
    for node in range(len(lengths)):
        path = path[: draw(st.integers(max(0, len(path) - stay), len(path)))]
        parents.append(path[-1] if path else -1)
        path.append(node)
    return lengths, parents


def star(prompt: int, leaves: list[int]) -> Forest:
    return [prompt, *leaves], [-1] + [0] * len(leaves)


def chain(lengths: list[int]) -> Forest:
    return lengths, list(range(-1, len(lengths) - 1))


def comb(turns: int, turn: int, side: int) -> Forest:
    """A chain of turns, each with a side branch before the next turn."""
    lengths, parents, last = [], [], -1
    for _ in range(turns):
        parents += [last, len(lengths)]
        last = len(lengths)
        lengths += [turn, side]
    return lengths, parents


FORESTS = {
    "one token": ([1], [-1]),
    "packed, one length": ([70] * 9, [-1] * 9),
    "packed, many lengths": (list(range(1, 60, 3)), [-1] * 20),
    "packed, long": ([400, 3, 290], [-1] * 3),
    "star": star(300, [64] * 6),
    "wide star of single tokens": star(40, [1] * 150),
    "wide star of uneven leaves": star(25, [1, 30, 2, 29, 7, 28, 120, 3] * 3),
    "deep chain of single tokens": chain([1] * 200),
    "chain of turns": chain([500] + [24] * 20),
    "two rollouts of turns": ([130] + [24] * 16, [-1, *range(8), 0, *range(9, 16)]),
    "turns with side branches": comb(20, 24, 17),
    "turns with batches of branches": (
        [50] + ([20] + [25] * 8) * 4,
        [-1, *(p for t in range(4) for p in [max(0, 9 * t - 8), *[1 + 9 * t] * 8])],
    ),
    "small trees": ([30, 9, 8, 30, 9, 8, 31, 2, 11], [-1, 0, 0, -1, 3, 3, -1, 6, 6]),
}


def dense_mask(layout: TreeLayout) -> Tensor:
    """[tokens, tokens], by following each token to the one before it in its sequence."""
    visible = torch.eye(layout.tokens, dtype=torch.bool)
    for token, before in enumerate(layout.previous.tolist()):
        if before >= 0:
            visible[token] |= visible[before]
    return visible


def draw_inputs(
    tokens: int, dtype: torch.dtype, heads: int = 2, kv_heads: int = 2, dim: int = 8, seed: int = 0
) -> list[Tensor]:
    """q, k, v and the gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(1, h, tokens, dim, generator=generator, dtype=torch.float64).to(dtype)
        for h in (heads, kv_heads, kv_heads, heads)
    ]


def outputs_and_gradients(attention, q: Tensor, k: Tensor, v: Tensor, weight: Tensor):
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    output = attention(*leaves)
    output.backward(weight)
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def oracle(layout: TreeLayout, inputs: list[Tensor], scale: float | None = None) -> list[Tensor]:
    mask = dense_mask(layout)
    return outputs_and_gradients(
        lambda q, k, v: functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scale, enable_gqa=True
        ),
        *(x.double() for x in inputs),
    )


def error(actual: Tensor, expected: Tensor) -> float:
    """Largest error (2-norm) over the heads, relative to norms of at least 1: where only one key
    is visible weights are constant, and dq and dk are zero. Both [1, heads, tokens, dim]."""
    difference = (actual.double() - expected.double())[0].flatten(1).norm(dim=1)
    return float((difference / expected.double()[0].flatten(1).norm(dim=1).clamp(min=1)).max())
