"""Token-level advantages against loops over plain lists, and published numbers."""

import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.returns import (
    discounted_returns,
    generalised_advantages,
    place_outcomes,
    whitened,
)

GOLDEN_ADVANTAGES = [0.38545, 0.42424, 0.49200, 0.60000]
GOLDEN_RETURNS = [0.48545, 0.62424, 0.79200, 1.0]

numbers = st.floats(-2, 2, allow_nan=False)
trajectories = st.lists(
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=7), min_size=1, max_size=6
)


def flat(rows: list[list[tuple[float, float]]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    pairs = torch.tensor([pair for row in rows for pair in row], dtype=torch.float64)
    sequence = torch.tensor([index for index, row in enumerate(rows) for _ in row])
    return pairs[:, 0], pairs[:, 1], sequence


def test_gae_gives_the_golden_numbers() -> None:
    rewards = torch.tensor([0, 0, 0, 1.0], dtype=torch.float64)
    values = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    found = generalised_advantages(rewards, values, torch.zeros(4, dtype=torch.long), 0.9, 0.8)
    assert found.advantages.tolist() == pytest.approx(GOLDEN_ADVANTAGES, abs=5e-6)
    assert found.returns.tolist() == pytest.approx(GOLDEN_RETURNS, abs=5e-6)


@given(trajectories, st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_sum_of_discounted_errors_of_each_trajectory(
    rows: list[list[tuple[float, float]]], gamma: float, lam: float
) -> None:
    rewards, values, sequence = flat(rows)
    found = generalised_advantages(rewards, values, sequence, gamma, lam)
    expected = []
    for row in rows:
        errors = [
            r + gamma * (row[t + 1][1] if t + 1 < len(row) else 0.0) - v
            for t, (r, v) in enumerate(row)
        ]
        expected += [
            sum((gamma * lam) ** (j - t) * errors[j] for j in range(t, len(row)))
            for t in range(len(row))
        ]
    assert found.advantages.tolist() == pytest.approx(expected, abs=1e-9)
    assert torch.allclose(found.returns, found.advantages + values)


@given(trajectories, st.floats(0, 1))
def test_returns_discount_within_each_trajectory(
    rows: list[list[tuple[float, float]]], gamma: float
) -> None:
    rewards, _, sequence = flat(rows)
    expected = [
        sum(gamma ** (j - t) * row[j][0] for j in range(t, len(row)))
        for row in rows
        for t in range(len(row))
    ]
    found = discounted_returns(rewards, sequence, gamma)
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


def test_returns_give_the_golden_numbers() -> None:
    # rewards (0, 0, 1) under the mask (1, 0, 1): the token in the middle was never sampled
    found = discounted_returns(torch.tensor([0.0, 1.0]), torch.zeros(2, dtype=torch.long), 0.5)
    assert found.tolist() == [0.5, 1.0]


def test_an_outcome_stands_on_the_last_sampled_token() -> None:
    sequence = torch.tensor([0, 0, 0, 1, 3, 3])
    placed = place_outcomes(torch.tensor([1.0, 2.0, 9.0, -1.0]), sequence)
    assert placed.tolist() == [0, 0, 1, 2, 0, -1]


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=30))
def test_whitened_tokens_have_mean_zero_and_deviation_one(values: list[float]) -> None:
    found = whitened(torch.tensor(values, dtype=torch.float64))
    if statistics.pstdev(values) < 1e-3:
        return
    assert statistics.fmean(found.tolist()) == pytest.approx(0, abs=1e-9)
    assert statistics.stdev(found.tolist()) == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("values", [[], [3.0], [0.1] * 9])
def test_tokens_without_variance_are_whitened_to_zeros(values: list[float]) -> None:
    assert whitened(torch.tensor(values)).tolist() == [0.0] * len(values)


def test_the_baseline_of_reinforce_pp_gives_the_golden_number() -> None:
    # rewards (1, 0, 0, 1), group mean taken off first, three equal tokens each
    centred = torch.tensor([0.5, -0.5, -0.5, 0.5], dtype=torch.float64).repeat_interleave(3)
    assert whitened(centred).tolist()[0] == pytest.approx(0.95743, abs=5e-6)
