"""Packed sequences and prefix trees: every implementation against one dense row a path."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.lightning import chunked, grids, packing, reference
from tests.engine.kernels.lightning_cases import (
    BOUNDS,
    IMPLEMENTATIONS,
    SLOPES,
    double,
    head_error,
    inputs,
    outputs_and_gradients,
)

LENGTHS = [1, 63, 64, 65, 255, 257, 600, 913]


def cumulative(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def path_by_path(q, k, v, slopes, *, initial_state, cu_seqlens, parents=None):
    """Each node at the end of its own dense row, from the root: nothing is shared."""
    borders, outputs, states = cu_seqlens.tolist(), [], []
    for node in range(len(borders) - 1):
        path = [node]
        while parents is not None and parents[path[0]] >= 0:
            path.insert(0, int(parents[path[0]]))
        index = torch.cat([torch.arange(borders[i], borders[i + 1]) for i in path])
        output, state = reference.lightning_attention(
            q[:, :, index],
            k[:, :, index],
            v[:, :, index],
            slopes,
            initial_state=initial_state[path[0] : path[0] + 1],
        )
        outputs.append(output[:, :, borders[node] - borders[node + 1] :])
        states.append(state)
    return torch.cat(outputs, dim=2), torch.cat(states)


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Lengths and parents of at most 9 nodes, any of which may be a root."""
    nodes = draw(st.integers(1, 9))
    lengths = draw(st.lists(st.integers(1, 40), min_size=nodes, max_size=nodes))
    return lengths, [draw(st.integers(-1, node - 1)) for node in range(nodes)]


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@settings(max_examples=20, deadline=None)
@given(
    forest=forests(),
    dim=st.sampled_from([4, 8, 24]),
    small=st.sampled_from([0, grids.SMALL_STATE]),
    seed=st.integers(0, 2**16),
)
def test_a_forest_equals_its_paths(
    name: str, forest: tuple[list[int], list[int]], dim: int, small: int, seed: int
) -> None:
    lengths, parents = forest
    tensors = inputs(sum(lengths), seed=seed, dim=dim, width=8, states=len(lengths))
    form = {"cu_seqlens": cumulative(lengths), "parents": torch.tensor(parents)}
    with patch.object(grids, "SMALL_STATE", small):  # states chunk by chunk, or level by level
        actual = outputs_and_gradients(
            IMPLEMENTATIONS[name].lightning_attention, tensors, SLOPES, **form
        )
    expected = outputs_and_gradients(path_by_path, tensors, SLOPES, **form)
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < 1e-12


@pytest.mark.parametrize("dtype", BOUNDS)
def test_packed_sequences_equal_the_recurrence(dtype: torch.dtype) -> None:
    tensors = inputs(sum(LENGTHS), dtype, states=len(LENGTHS))
    form = {"cu_seqlens": cumulative(LENGTHS)}
    actual = outputs_and_gradients(chunked.lightning_attention, tensors, SLOPES, **form)
    expected = outputs_and_gradients(path_by_path, double(tensors), SLOPES, **form)
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < BOUNDS[dtype]


@pytest.mark.parametrize("dtype", BOUNDS)
def test_a_tree_of_turns_equals_the_recurrence(dtype: torch.dtype) -> None:
    """A long prompt, then two rollouts of many short turns."""
    turns, lengths = 12, [257] + 2 * 12 * [24]
    parents = [-1] + [0 if i % turns == 0 else i for i in range(2 * turns)]
    tensors = inputs(sum(lengths), dtype, dim=64, states=len(lengths))
    form = {"cu_seqlens": cumulative(lengths), "parents": torch.tensor(parents)}
    actual = outputs_and_gradients(chunked.lightning_attention, tensors, SLOPES, **form)
    expected = outputs_and_gradients(reference.lightning_attention, double(tensors), SLOPES, **form)
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < BOUNDS[dtype]


def test_one_packing_serves_many_calls() -> None:
    cu, parents = cumulative([30, 7, 50]), torch.tensor([-1, 0, 0])
    q, k, v, state = inputs(87, states=3)
    pack = packing(cu, parents, chunk=16)
    form = outputs_and_gradients(
        chunked.lightning_attention, [q, k, v, state], SLOPES, cu_seqlens=cu, parents=parents
    )
    for _ in range(2):
        again = outputs_and_gradients(
            chunked.lightning_attention, [q, k, v, state], SLOPES, packing=pack
        )
        assert all(torch.equal(a, b) for a, b in zip(again, form, strict=True))


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_an_absent_initial_state_is_zero_and_that_of_inner_nodes_is_not_read(name: str) -> None:
    attention = IMPLEMENTATIONS[name].lightning_attention
    q, k, v, state = inputs(40, states=2)
    form = {"cu_seqlens": torch.tensor([0, 25, 40]), "parents": torch.tensor([-1, 0])}
    absent = attention(q, k, v, SLOPES, **form)
    state[0], state[1] = 0, torch.nan
    given_zero = attention(q, k, v, SLOPES, initial_state=state, **form)
    assert all(torch.equal(a, b) for a, b in zip(absent, given_zero, strict=True))


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_nothing_leaks_between_packed_sequences(name: str) -> None:
    """A NaN in one sequence stays there, in both directions."""
    attention = IMPLEMENTATIONS[name].lightning_attention
    tensors = inputs(50, states=3)
    for x in tensors[:3]:
        x[:, :, 20:33] = torch.nan
    out, final, *gradients = outputs_and_gradients(
        attention, tensors, SLOPES, cu_seqlens=torch.tensor([0, 20, 33, 50])
    )
    for x in (out, *gradients[:3]):
        assert torch.isfinite(x[:, :, :20]).all() and torch.isfinite(x[:, :, 33:]).all()
    assert torch.isfinite(final[[0, 2]]).all() and torch.isfinite(gradients[3][[0, 2]]).all()


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_memory_past_the_tokens_is_not_read(name: str) -> None:
    """q, k, v are views of storage that is full of NaN around them."""
    attention = IMPLEMENTATIONS[name].lightning_attention
    tensors = inputs(53, states=2)
    inside = []
    for x in tensors[:3]:
        storage = torch.full((1, 4, 128, 16), torch.nan, dtype=x.dtype)
        storage[:, :, 30:83] = x
        inside.append(storage[:, :, 30:83])
    cu = torch.tensor([0, 20, 53])
    expected = outputs_and_gradients(attention, tensors, SLOPES, cu_seqlens=cu)
    actual = attention(*inside, SLOPES, initial_state=tensors[3], cu_seqlens=cu)
    assert all(torch.equal(a, e) for a, e in zip(actual, expected[:2], strict=True))
