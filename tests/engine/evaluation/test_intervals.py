"""Rates, intervals and paired comparisons against published and hand-computed numbers."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.intervals import (
    Interval,
    clustered,
    difference,
    mcnemar_p,
    paired_gain,
    rate,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "trials", "lower", "upper"),
    [
        (360, 3000, 0.1089, 0.1321),
        (120, 3000, 0.0336, 0.0476),
        (0, 50, 0.0, 0.0713),
        (8, 10, 0.4902, 0.9433),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I
        (15, 148, 0.0624, 0.1605),
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


@pytest.mark.parametrize(
    ("before", "after", "lower", "upper"),
    [
        ([0.0], [1.0], 1 - 2 * wilson(0, 1).upper, 1.0),
        ([1.0] * 3, [0.0] * 3, -1.0, 2 * wilson(0, 3).upper - 1),
        ([0.0, 1.0] * 50, [0.0, 1.0] * 50, -wilson(0, 100).upper, wilson(0, 100).upper),
    ],
)
def test_tasks_that_all_gain_the_same_are_not_certain_of_it(
    before: list[float], after: list[float], lower: float, upper: float
) -> None:
    """One task that only the second policy solves does not make it the better one."""
    found = paired_gain(before, after)
    assert found.value == after[0] - before[0]
    assert (found.lower, found.upper) == pytest.approx((lower, upper))
    assert found.lower < 0 < found.upper


def test_paired_comparisons_refuse_different_tasks() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        mcnemar_p([True], [True, False])
    with pytest.raises(ValueError, match="same tasks"):
        paired_gain([], [])


def test_an_interval_over_tasks_keeps_their_trials_together() -> None:
    """Ten copies of a trial say no more than one: the interval must not shrink."""
    single = [[float(index < 30)] for index in range(100)]
    copied = [trials * 10 for trials in single]
    once, often = clustered(single), clustered(copied)
    assert once == often
    assert once.value == pytest.approx(0.3)
    deviation = math.sqrt(0.3 * 0.7 / 100)
    assert once.lower == pytest.approx(0.3 - 1.96 * deviation, abs=0.02)
    assert once.upper == pytest.approx(0.3 + 1.96 * deviation, abs=0.02)


@pytest.mark.parametrize("tasks", [40, 3000])  # in one table of draws, and in many
def test_an_interval_of_graded_rewards_is_that_of_their_mean(tasks: int) -> None:
    """Many values that all differ: draws of tasks, where few values take counts of each."""
    rewards = [(place + 0.5) / tasks for place in range(tasks)]
    found = clustered([[reward] for reward in rewards])
    deviation = math.sqrt((1 - tasks**-2) / 12 / tasks)  # of the mean of an even grid
    assert found.value == pytest.approx(0.5)
    assert found.lower == pytest.approx(0.5 - 1.96 * deviation, abs=0.06 * deviation)
    assert found.upper == pytest.approx(0.5 + 1.96 * deviation, abs=0.06 * deviation)


def test_a_gain_turned_round_is_a_loss_of_the_same_size() -> None:
    """Both ends leave out equally many of the resamples."""
    before, after = [k / 50 for k in range(50)], [(k * k % 53) / 50 for k in range(50)]
    gain, loss = paired_gain(before, after), paired_gain(after, before)
    assert (loss.lower, loss.upper) == pytest.approx((-gain.upper, -gain.lower), abs=1e-12)


def test_a_rate_is_the_mean_over_tasks_not_over_trials() -> None:
    found = rate([[True] * 9, [False]])
    assert found.value == 0.5
    assert rate([[True]] * 8 + [[False]] * 2) == wilson(8, 10)


def test_tasks_that_are_all_solved_each_time_show_no_certainty() -> None:
    """Four tasks solved twice each do not show that every task is solved."""
    assert rate([[True, True]] * 4).lower == pytest.approx(wilson(4, 4).lower)
    assert rate([[False] * 3] * 4).upper == pytest.approx(wilson(0, 4).upper)
    half = rate([[True, False]] * 4)
    assert half.lower < 0.3 and half.upper > 0.7


def test_a_worse_result_has_no_better_lower_end() -> None:
    """One failed trial in 48 must not say more than none."""
    ends = [rate([[True, True]] * (24 - k) + [[True, False]] * k).lower for k in range(25)]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.parametrize("rates", [[0.95] * 8, [1.0] * 6 + [0.5] * 2])
def test_an_interval_over_few_tasks_covers_what_it_says(rates: list[float]) -> None:
    """Tasks like these drawn again and again: nine in ten intervals hold the mean at least."""
    rng, held = random.Random(0), 0
    for _ in range(200):
        drawn = [rng.choice(rates) for _ in rates]
        found = rate([[rng.random() < one for _ in range(4)] for one in drawn])
        held += found.lower <= sum(rates) / len(rates) <= found.upper
    assert held >= 180


@pytest.mark.parametrize("tasks", [[], [[True], []]])
def test_an_interval_over_tasks_needs_a_trial_of_each(tasks: list[list[bool]]) -> None:
    with pytest.raises(ValueError, match="each with a trial"):
        clustered(tasks)


def test_a_difference_of_independent_rates_is_newcombes() -> None:
    """56/70 and 48/80: method 10 of Newcombe 1998, table II, row a."""
    found = difference(wilson(56, 70), wilson(48, 80))
    assert found.value == pytest.approx(0.2)
    assert (found.lower, found.upper) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert difference(Interval(1, 1, 1), Interval(1, 1, 1)) == Interval(0, 0, 0)
