"""What a critic is trained by, token by token, and the share of the returns it explains."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.values import explained_variance, value_losses

VALUE = st.floats(-10, 10)


@given(
    st.lists(st.tuples(VALUE, VALUE, VALUE), min_size=1, max_size=9),
    st.sampled_from([0.1, 0.5, 3.0]),
)
def test_the_loss_is_the_worse_of_the_free_and_the_clipped_value(
    tokens: list[tuple[float, float, float]], clip: float
) -> None:
    values, returns, before = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*tokens, strict=True)
    )
    found = value_losses(values, returns, before, clip)
    for place, (value, target, old) in enumerate(tokens):
        held = min(max(value, old - clip), old + clip)
        worse = max((value - target) ** 2, (held - target) ** 2)
        assert float(found.losses[place]) == pytest.approx(0.5 * worse)


def test_a_bound_that_counted_says_which_and_stops_the_gradient() -> None:
    values = torch.tensor([3.0, -1.0, 3.0, 1.1], dtype=torch.float64, requires_grad=True)
    before = torch.tensor([1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    returns = torch.tensor([3.0, -1.0, 0.0, 0.0], dtype=torch.float64)
    found = value_losses(values, returns, before, 0.5)
    assert found.clipped.tolist() == [1, -1, 0, 0]
    found.losses.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([0.0, 0.0, 3.0, 1.1])


@given(st.lists(st.tuples(VALUE, VALUE), min_size=2, max_size=20))
def test_it_explains_what_is_left_of_the_variance(tokens: list[tuple[float, float]]) -> None:
    values, returns = ([*column] for column in zip(*tokens, strict=True))
    spread = statistics.pvariance(returns)
    found = explained_variance(torch.tensor(values).double(), torch.tensor(returns).double())
    if spread < 1e-9:
        return
    left = statistics.pvariance([r - v for v, r in tokens])
    assert found == pytest.approx(1 - left / spread, rel=1e-4, abs=1e-4)


def test_returns_that_do_not_vary_are_not_explained() -> None:
    assert explained_variance(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5])) is None
    assert explained_variance(torch.tensor([]), torch.tensor([])) is None
