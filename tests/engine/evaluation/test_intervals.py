"""Rates, intervals and paired comparisons against published and hand-computed numbers."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.intervals import mcnemar_p, paired_gain, pass_at_k, pass_hat_k, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "lower", "upper"),
    [
        (360, 3000, 0.1089, 0.1321),
        (120, 3000, 0.0336, 0.0476),
        (0, 50, 0.0, 0.0713),
        (8, 10, 0.4902, 0.9433),
    ],
)
def test_wilson_gives_the_golden_intervals(
    successes: int, trials: int, lower: float, upper: float
) -> None:
    interval = wilson(successes, trials)
    assert interval.value == successes / trials
    assert interval.lower == pytest.approx(lower, abs=5e-5)
    assert interval.upper == pytest.approx(upper, abs=5e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_symmetric_and_holds_its_rate(pair: tuple[int, int]) -> None:
    successes, trials = pair
    interval, mirrored = wilson(successes, trials), wilson(trials - successes, trials)
    assert 0 <= interval.lower <= interval.value <= interval.upper <= 1
    assert interval.lower == pytest.approx(1 - mirrored.upper)


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_rate(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="no rate"):
        wilson(successes, trials)


def test_mcnemar_is_the_binomial_test_on_discordant_tasks() -> None:
    before = [True] * 40 + [True] * 2 + [False] * 10 + [False] * 8
    after = [True] * 40 + [False] * 2 + [True] * 10 + [False] * 8
    expected = 2 * sum(math.comb(12, k) for k in range(3)) / 2**12
    assert mcnemar_p(before, after) == pytest.approx(expected)
    assert mcnemar_p(before, before) == 1.0


def test_a_paired_interval_excludes_zero_only_where_the_gain_is_clear() -> None:
    before = [0.0] * 60 + [1.0] * 40
    after = [1.0] * 30 + [0.0] * 30 + [1.0] * 38 + [0.0] * 2
    gain = paired_gain(before, after)
    assert gain.value == pytest.approx(0.28)
    deviation = math.sqrt((32 / 100 - 0.28**2) / 100)  # of the mean of -1, 0, 1
    assert gain.lower == pytest.approx(0.28 - 1.96 * deviation, abs=0.02)
    assert gain.upper == pytest.approx(0.28 + 1.96 * deviation, abs=0.02)
    assert paired_gain(before, before).upper == 0.0


def test_paired_comparisons_refuse_different_tasks() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        mcnemar_p([True], [True, False])
    with pytest.raises(ValueError, match="same tasks"):
        paired_gain([], [])


def test_pass_at_k_gives_the_golden_number() -> None:
    assert pass_at_k(10, 3, 5) == pytest.approx(0.916667, abs=1e-6)
    assert pass_hat_k(4, 3, 2) == pytest.approx(0.5)


@given(st.integers(1, 7), st.data())
def test_pass_k_counts_all_choices_of_trials(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    k = data.draw(st.integers(1, trials))
    outcomes = [True] * successes + [False] * (trials - successes)
    choices = list(itertools.combinations(outcomes, k))
    some = sum(any(choice) for choice in choices) / len(choices)
    every = sum(all(choice) for choice in choices) / len(choices)
    assert pass_at_k(trials, successes, k) == pytest.approx(some)
    assert pass_hat_k(trials, successes, k) == pytest.approx(every)


def test_pass_at_k_is_undefined_for_more_draws_than_trials() -> None:
    with pytest.raises(ValueError, match="undefined"):
        pass_at_k(3, 1, 5)
