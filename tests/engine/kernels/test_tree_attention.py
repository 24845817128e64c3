"""Tree attention against fp64 attention under the dense mask, and against sequences alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.tree import TreeLayout, tree_attention
from tests.engine.kernels.tree_cases import (
    FORESTS,
    Forest,
    comb,
    dense_mask,
    draw_inputs,
    error,
    forests,
    oracle,
    outputs_and_gradients,
    star,
)

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5}


def assert_equal(layout: TreeLayout, inputs: list[Tensor], bound: float) -> None:
    actual = outputs_and_gradients(lambda q, k, v: tree_attention(q, k, v, layout), *inputs)
    for name, a, e in zip(("out", "dq", "dk", "dv"), actual, oracle(layout, inputs), strict=True):
        assert error(a, e) < bound, name
        assert a.dtype == inputs[0].dtype


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", FORESTS)
def test_it_equals_attention_under_the_dense_mask(name: str, dtype: torch.dtype) -> None:
    layout = TreeLayout.build(*FORESTS[name])
    assert_equal(layout, draw_inputs(layout.tokens, dtype), BOUNDS[dtype])


@settings(max_examples=60, deadline=None)
@given(forest=forests(), groups=st.sampled_from([(1, 1), (3, 1), (4, 2)]), seed=st.integers(0, 99))
def test_it_equals_the_dense_mask_on_any_forest(
    forest: Forest, groups: tuple[int, int], seed: int
) -> None:
    layout = TreeLayout.build(*forest)
    inputs = draw_inputs(layout.tokens, torch.float64, *groups, dim=4, seed=seed)
    assert_equal(layout, inputs, 1e-12)


@settings(max_examples=25, deadline=None)
@given(forest=forests(), seed=st.integers(0, 99))
def test_every_sequence_gets_what_it_gets_alone(forest: Forest, seed: int) -> None:
    """The law of merging: outputs are those of each sequence alone, and gradients of shared
    tokens are the sums over the sequences that run through them."""
    layout = TreeLayout.build(*forest)
    q, k, v, weight = draw_inputs(layout.tokens, torch.float64, 2, 1, 4, seed)
    visible = dense_mask(layout)
    leaves = sorted(set(range(layout.nodes)) - set(layout.parents.tolist()))
    sequences = [torch.nonzero(visible[layout.cu_seqlens[n + 1] - 1])[:, 0] for n in leaves]
    uses = torch.zeros(layout.tokens, dtype=torch.float64)
    for sequence in sequences:
        uses[sequence] += 1
    merged = outputs_and_gradients(
        lambda *x: tree_attention(*x, layout), q, k, v, weight * uses[:, None]
    )
    gradients = [torch.zeros_like(x) for x in (q, k, v)]
    for sequence in sequences:
        alone = TreeLayout.build([len(sequence)], [-1])
        parts = [x[:, :, sequence] for x in (q, k, v, weight)]
        out, *gradient = oracle(alone, parts)
        assert error(merged[0][:, :, sequence], out) < 1e-12
        for total, part in zip(gradients, gradient, strict=True):
            total[:, :, sequence] += part
    for actual, expected in zip(merged[1:], gradients, strict=True):
        assert (actual - expected).abs().max() < 1e-12 * max(1, len(sequences))


def test_it_is_close_in_bf16() -> None:
    layout = TreeLayout.build(*FORESTS["two rollouts of turns"])
    inputs = draw_inputs(layout.tokens, torch.bfloat16, 4, 2, 32)
    actual = outputs_and_gradients(lambda *x: tree_attention(*x, layout), *inputs)
    for a, e in zip(actual, oracle(layout, inputs), strict=True):
        assert a.dtype == torch.bfloat16 and error(a, e) < 0.02


def test_many_branches_do_not_wear_down_a_bf16_gradient() -> None:
    """Thousands of small gradients add up in one prompt token: their sum is kept in fp32."""
    layout = TreeLayout.build(*star(600, [40] * 60))
    inputs = draw_inputs(layout.tokens, torch.bfloat16, 1, 1, 16)
    actual = outputs_and_gradients(lambda *x: tree_attention(*x, layout), *inputs)
    for a, e in zip(actual, oracle(layout, inputs), strict=True):
        assert error(a, e) < 0.02


@pytest.mark.parametrize("heads_at_once", [1, 2])
def test_heads_may_be_computed_in_parts(
    heads_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = TreeLayout.build(*comb(6, 40, 30))
    monkeypatch.setattr("engine.kernels.tree.plan.SCORES", 300 * 210 * heads_at_once)
    assert_equal(layout, draw_inputs(layout.tokens, torch.float64, 4, 4), 1e-12)


def test_views_of_one_projection_and_a_scale_are_taken() -> None:
    layout = TreeLayout.build(*star(20, [5, 6]))
    whole = torch.randn(1, layout.tokens, 3, 2, 8, dtype=torch.float64, requires_grad=True)
    q, k, v = whole.permute(2, 0, 3, 1, 4)
    tree_attention(q, k, v, layout, scale=0.7).sum().backward()
    found = whole.grad
    expected = oracle(layout, [*(x.detach() for x in (q, k, v)), torch.ones_like(q)], 0.7)
    assert found is not None
    for a, e in zip(found.permute(2, 0, 3, 1, 4), expected[1:], strict=True):
        assert (a - e).abs().max() < 1e-12


def test_layers_share_one_plan() -> None:
    layout = TreeLayout.build(*star(20, [5, 6]))
    inputs = draw_inputs(layout.tokens, torch.float32)
    tree_attention(*inputs[:3], layout)
    (made,) = layout.derived.values()
    tree_attention(*inputs[:3], layout)
    assert list(layout.derived.values()) == [made]


def test_a_second_derivative_is_refused() -> None:
    layout = TreeLayout.build([4], [-1])
    q, k, v = (x.requires_grad_() for x in draw_inputs(4, torch.float64)[:3])
    loss = tree_attention(q, k, v, layout).square().sum()
    (first,) = torch.autograd.grad(loss, q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def refused(message: str, *shapes: tuple[int, ...], dtypes=(torch.float32,) * 3) -> None:
    layout = TreeLayout.build([4, 3], [-1, 0])
    inputs = [torch.zeros(s, dtype=t) for s, t in zip(shapes, dtypes, strict=True)]
    with pytest.raises(ValueError, match=message):
        tree_attention(*inputs, layout)


def test_it_refuses_what_does_not_fit() -> None:
    fits = 1, 2, 7, 8
    refused(r"q \(2, 2, 7, 8\).*expected \[1, heads", (2, 2, 7, 8), fits, fits)
    refused(r"k \(1, 2, 7, 8\), v \(1, 2, 7, 4\)", fits, fits, (1, 2, 7, 4))
    refused(r"k \(1, 2, 6, 8\)", fits, (1, 2, 6, 8), (1, 2, 6, 8))
    refused(r"heads of k must divide", (1, 3, 7, 8), fits, fits)
    refused(r"layout of 7 tokens", *[(1, 2, 6, 8)] * 3)
    half = torch.float32, torch.bfloat16, torch.bfloat16
    refused(r"q torch.float32, k torch.bfloat16", fits, fits, fits, dtypes=half)
    refused(r"fp64, fp32 or bf16", fits, fits, fits, dtypes=(torch.float16,) * 3)


def test_it_refuses_a_layout_elsewhere() -> None:
    layout = TreeLayout.build([4], [-1]).to("meta")
    with pytest.raises(ValueError, match="layout on meta; move all to the CPU"):
        tree_attention(*draw_inputs(4, torch.float32)[:3], layout)
    with pytest.raises(ValueError, match="q on meta, k on meta"):
        tree_attention(*(x.to("meta") for x in draw_inputs(4, torch.float32)[:3]), layout)
