"""pass@k and pass^k against the published numbers and against counting all choices."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.pass_k import PassK, pass_at_k, pass_curve, pass_hat_k


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
    with pytest.raises(ValueError, match="undefined"):
        pass_hat_k(3, 1, 0)


def test_a_curve_has_every_k_and_leaves_out_tasks_with_fewer_trials() -> None:
    first, second, third = pass_curve([[True, True, False], [False, True]])
    assert (first.k, first.tasks) == (1, 2)
    assert first.at == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert first.hat == pytest.approx(first.at), "one of one trial is all of one trial"
    assert (second.tasks, second.at) == (2, 1.0)
    assert second.hat == pytest.approx((1 / 3 + 0) / 2)
    assert third == PassK(3, 1, 1.0, 0.0)
    assert pass_curve([]) == []


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1))
def test_pass_at_k_rises_and_pass_hat_k_falls(tasks: list[list[bool]]) -> None:
    curve = pass_curve(tasks)
    at, hat = [one.at for one in curve], [one.hat for one in curve]
    assert at == pytest.approx(sorted(at))
    assert hat == pytest.approx(sorted(hat, reverse=True))
