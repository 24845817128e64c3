"""Corrections of the gap between sampler and trainer, against loops and known faults of peers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.corrections import (
    correction_weights,
    negative_drift_mask,
    sequence_mean,
)
from engine.spec.algorithms import CORRECTION_BOUNDS, Correction

ratios = st.lists(st.floats(0.01, 100), min_size=1, max_size=12)


def weights(
    kind: Correction, values: list[float], sequence: list[int] | None = None
) -> tuple[list[float], list[int]]:
    numbers = torch.tensor(sequence or [0] * len(values))
    found, bounded = correction_weights(kind, logs(values), numbers, CORRECTION_BOUNDS[kind])
    return found.tolist(), bounded.tolist()


def logs(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


@given(ratios)
def test_truncation_caps_the_ratio(values: list[float]) -> None:
    found, _ = weights("truncated", values)
    assert found == pytest.approx([min(v, 2.0) for v in values])


@given(ratios)
def test_icepop_drops_what_lies_outside_the_band(values: list[float]) -> None:
    expected = [v if 0.5 <= v <= 5.0 else 0.0 for v in values]
    clear = [abs(v - 0.5) > 1e-9 and abs(v - 5.0) > 1e-9 for v in values]
    found, _ = weights("icepop", values)
    assert [f for f, c in zip(found, clear, strict=True) if c] == pytest.approx(
        [e for e, c in zip(expected, clear, strict=True) if c]
    )


def test_the_geometric_mean_of_opposite_ratios_is_one() -> None:
    # the arithmetic mean of (4, .25) would be 2.125 and drop the trajectory
    assert weights("geometric", [4, 0.25]) == ([1, 1], [0, 0])


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.05, 20)), min_size=1, max_size=16))
def test_whole_trajectories_are_kept_or_dropped(tokens: list[tuple[int, float]]) -> None:
    found, _ = weights("geometric", [r for _, r in tokens], [s for s, _ in tokens])
    for (number, _), kept in zip(tokens, found, strict=True):
        own = [math.log(r) for s, r in tokens if s == number]
        mean = sum(own) / len(own)
        if abs(abs(mean) - math.log(2)) > 1e-9:
            assert kept == float(abs(mean) < math.log(2))


def test_a_long_trajectory_is_judged_as_a_short_one() -> None:
    # a product over 1,000 tokens of 1.001 would exceed any cap
    assert all(weights("geometric", [1.001] * 1000)[0])


def test_a_bad_trajectory_that_was_left_behind_is_dropped() -> None:
    behind = torch.tensor([0.2, 1.2, 0.7, 0.7, 0.1, 0.1, 0.7])
    advantages = torch.tensor([-0.1, -0.1, 0.1, 0.1, -1.0, -1.0, 0.0])
    sequence = torch.tensor([0, 0, 1, 1, 2, 2, 3])
    found = negative_drift_mask(behind, advantages, sequence, 0.5)
    assert found.tolist() == [0, 0, 1, 1, 1, 1, 1]


def test_no_correction_carries_a_gradient() -> None:
    log_rho = torch.zeros(3, requires_grad=True)
    sequence = torch.zeros(3, dtype=torch.long)
    for kind in ("truncated", "icepop", "geometric"):
        found, _ = correction_weights(kind, log_rho, sequence, CORRECTION_BOUNDS[kind])
        assert not found.requires_grad


def test_it_says_on_which_side_a_bound_acted() -> None:
    assert weights("icepop", [0.1, 1.0, 9.0])[1] == [-1, 0, 1]
    assert weights("truncated", [0.1, 1.0, 9.0])[1] == [0, 0, 1]


def test_the_mean_of_a_trajectory_keeps_the_gradient() -> None:
    values = torch.tensor([1.0, 3.0, 5.0], requires_grad=True)
    means = sequence_mean(values, torch.tensor([7, 7, 2]))
    assert means.tolist() == [2.0, 2.0, 5.0]
    means[0].backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0.5, 0.0]
