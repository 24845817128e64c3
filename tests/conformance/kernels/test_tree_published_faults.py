"""Trees as published implementations got them wrong: one test for each known fault.

Each docstring names where the fault was, or the law that it broke.
"""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.tree import TreeLayout, tree_attention
from tests.engine.kernels.tree_cases import (
    Forest,
    comb,
    draw_inputs,
    error,
    forests,
    outputs_and_gradients,
    star,
)


def numbers(x: object) -> int:
    """How many numbers all tensors inside hold."""
    if isinstance(x, Tensor):
        return x.numel()
    if dataclasses.is_dataclass(x):
        return sum(numbers(getattr(x, field.name)) for field in dataclasses.fields(x))
    if isinstance(x, dict):
        return sum(numbers(value) for value in x.values())
    return sum(map(numbers, x)) if isinstance(x, tuple) else 0


@pytest.mark.parametrize("shape", ["star", "turns with branches", "packed"])
def test_metadata_grows_with_the_tokens_not_with_their_square(shape: str) -> None:
    """AReaL's tree training builds a mask of tokens x tokens, or its bits in Python loops."""

    def held(size: int) -> float:
        forest = {
            "star": star(200 * size, [40] * 10 * size),
            "turns with branches": comb(10 * size, 40, 30),
            "packed": ([50] * 10 * size, [-1] * 10 * size),
        }[shape]
        layout = TreeLayout.build(*forest)
        tree_attention(*draw_inputs(layout.tokens, torch.float32, 1, 1)[:3], layout)
        return numbers(layout) / layout.tokens

    assert held(16) < 1.5 * held(4)


def test_nodes_in_the_order_of_their_insertion_are_refused() -> None:
    """AReaL numbers nodes as they were inserted, so that its flat order need not be depth-first."""
    with pytest.raises(ValueError, match="depth-first preorder"):
        TreeLayout.build([4, 2, 2, 3], [-1, 0, 0, 1])


def test_every_branch_counts_positions_from_its_own_depth() -> None:
    """Positions counted along the pack give siblings different rotary angles."""
    layout = TreeLayout.build([3, 2, 1, 2, 2], [-1, 0, 1, 0, -1])
    assert layout.positions.tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 0, 1]


@settings(max_examples=20, deadline=None)
@given(forest=forests(), seed=st.integers(0, 99))
def test_a_packed_sequence_never_sees_its_neighbour(forest: Forest, seed: int) -> None:
    """transformers' packed rows leak from one sample into the next."""
    lengths, parents = forest
    ours = TreeLayout.build([5, *lengths], [-1, *(p + 1 if p >= 0 else -1 for p in parents)])
    inputs = draw_inputs(ours.tokens, torch.float64, 1, 1, 4, seed)
    changed = [x.clone() for x in inputs]
    for x in changed:
        x[:, :, :5] *= -3
    before, after = (
        outputs_and_gradients(lambda *x: tree_attention(*x, ours), *x) for x in (inputs, changed)
    )
    for b, a in zip(before, after, strict=True):
        assert error(a[:, :, 5:], b[:, :, 5:]) < 1e-12


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_where_a_sequence_is_cut_into_nodes_changes_nothing(lengths: list[int], seed: int) -> None:
    """vLLM shares prefixes of hybrids on a grid of blocks only; here any token may branch."""
    cut = TreeLayout.build(lengths, list(range(-1, len(lengths) - 1)))
    whole = TreeLayout.build([sum(lengths)], [-1])
    inputs = draw_inputs(cut.tokens, torch.float64, 2, 1, 4, seed)
    results = [
        outputs_and_gradients(lambda *x, layout=layout: tree_attention(*x, layout), *inputs)
        for layout in (cut, whole)
    ]
    for a, e in zip(*results, strict=True):
        assert error(a, e) < 1e-12


def test_the_order_of_siblings_changes_nothing() -> None:
    """AReaL's flat order follows insertion; results may follow the tree only."""
    first, second = star(90, [30, 50, 20]), star(90, [20, 30, 50])
    layout, moved = TreeLayout.build(*first), TreeLayout.build(*second)
    order = torch.cat([torch.arange(90), torch.arange(170, 190), torch.arange(90, 170)])
    inputs = draw_inputs(layout.tokens, torch.float64)
    here = outputs_and_gradients(lambda *x: tree_attention(*x, layout), *inputs)
    there = outputs_and_gradients(
        lambda *x: tree_attention(*x, moved), *(x[:, :, order] for x in inputs)
    )
    for a, e in zip(there, here, strict=True):
        assert error(a, e[:, :, order]) < 1e-12


def test_an_empty_node_is_refused() -> None:
    """fla #103: equal neighbours in cu_seqlens read out of bounds or gave NaN."""
    with pytest.raises(ValueError, match="Node 1 has 0 tokens"):
        TreeLayout.build([5, 0, 4], [-1, 0, 0])


def test_keys_that_are_views_get_right_gradients() -> None:
    """pytorch #158212: wrong gradients of FlexAttention for keys that are not contiguous."""
    layout = TreeLayout.build(*star(30, [9, 40]))
    q, k, v, weight = draw_inputs(layout.tokens, torch.float64)
    plain = outputs_and_gradients(lambda *x: tree_attention(*x, layout), q, k, v, weight)
    views = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v, weight)]
    assert not views[1].is_contiguous()
    for a, e in zip(
        outputs_and_gradients(lambda *x: tree_attention(*x, layout), *views), plain, strict=True
    ):
        assert error(a, e) < 1e-12
