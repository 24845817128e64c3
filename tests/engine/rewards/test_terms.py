"""The terms of a reward, each against its definition written naively."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records.trajectory import StopReason, Trajectory
from engine.rewards.terms import TERMS
from tests.engine.rewards.samples import step, term, trajectories, trajectory

GOOD = trajectory(
    step(tokens=50), step("unknown_entity", tokens=70), step("invalid_json"), step(answer="Euro")
)
OUT = {"stop_reason": StopReason.MAX_CALLS}


def value(kind: Any, sample: Trajectory, **fields: int) -> float:
    one = term(kind, **fields)
    return math.fsum(TERMS[kind](sample, one))


@pytest.mark.parametrize(
    ("kind", "sample", "expected"),
    [
        ("exact_answer", GOOD, [0, 0, 0, 1]),
        ("exact_answer", trajectory(step(answer="euro")), [0]),
        ("exact_answer", trajectory(step(), **OUT), [0]),
        ("exact_answer", trajectory(), []),
        ("format", GOOD, [0.25, 0.25, 0, 0.25]),
        ("format", trajectory(step("invalid_json", detour=True), step(answer="x")), [0, 1]),
        ("length", GOOD, [0.5, 0.7, 0, 0]),
        ("length", trajectory(step(), step(), sampled_tokens=150), [0, 1.5]),
        ("tool_errors", GOOD, [0, 1 / 3, 1 / 3, 0]),
        ("tool_errors", trajectory(step(answer="Euro")), [0]),
        ("tool_error_count", GOOD, [0, 1, 1, 0]),
        ("tool_error_count", trajectory(step("timeout"), step("max_calls"), **OUT), [0, 1]),
        ("tool_error_count", trajectory(step("unknown_tool", detour=True)), [0]),
    ],
)
def test_a_term_measures_by_step(kind: Any, sample: Trajectory, expected: list[float]) -> None:
    assert TERMS[kind](sample, term(kind)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("texts", "ngram", "expected"),
    [
        (["a b c a b", "x"], 2, [1 / 4, 0]),  # ab bc ca ab
        (["a b c", "A, B; c!"], 2, [0, 2 / 4]),  # case and signs are none of the words
        (["a b", "b a"], 2, [0, 0]),  # ba would span two turns otherwise
        (["重复重复重复"], 2, [3 / 5]),
        (["one", "two"], 2, [0, 0]),
        (["same same"], 1, [1 / 2]),
    ],
)
def test_repetition_is_the_share_of_n_grams_seen_before(
    texts: list[str], ngram: int, expected: list[float]
) -> None:
    sample = trajectory(*(step(text=text) for text in texts))
    parts = TERMS["repetition"](sample, term("repetition", ngram=ngram))
    assert parts == pytest.approx(expected)


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=5), st.integers(1, 4))
def test_repetition_is_one_minus_the_share_of_the_unique(
    turns: list[list[str]], ngram: int
) -> None:
    """As Welleck et al. write it: 1 - unique / all."""
    sample = trajectory(*(step(text=" ".join(words)) for words in turns))
    grams = [
        tuple(words[start : start + ngram])
        for words in turns
        for start in range(len(words) - ngram + 1)
    ]
    expected = 1 - len(set(grams)) / len(grams) if grams else 0.0
    assert value("repetition", sample, ngram=ngram) == pytest.approx(expected, abs=1e-12)


def test_repetition_leaves_detours_out() -> None:
    sample = trajectory(step(text="a b"), step(text="a b", detour=True))
    assert TERMS["repetition"](sample, term("repetition", ngram=2)) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(0, 0), (16_384, 0), (16_385, -1 / 4096), (18_432, -0.5), (20_480, -1), (30_000, -1)],
)
def test_the_overlong_penalty_is_that_of_dapo(tokens: int, penalty: float) -> None:
    """A budget of 20,480 with a cache of 4,096, as in the paper."""
    sample = trajectory(step(tokens=tokens))
    assert value("overlong", sample, budget=20_480, cache=4_096) == pytest.approx(penalty)


@given(trajectories, st.integers(1, 200), st.integers(0, 200))
def test_the_overlong_penalty_by_step_is_what_its_tokens_added(
    sample: Trajectory, budget: int, cache: int
) -> None:
    cache = min(cache, budget)

    def penalty(tokens: int) -> float:
        if cache == 0:
            return -float(tokens > budget)
        return -min(1.0, max(0.0, (tokens - (budget - cache)) / cache))

    parts = TERMS["overlong"](sample, term("overlong", 1.0, budget, cache))
    so_far = 0
    for index, one in enumerate(sample.steps):
        so_far += one.stop - one.start
        assert math.fsum(parts[: index + 1]) == pytest.approx(penalty(so_far), abs=1e-12)


def test_what_a_tool_wrote_is_not_overlong() -> None:
    sample = trajectory(step(tokens=10), step(answer="Euro", tokens=10))
    sample.steps[1].start, sample.steps[1].stop = 5_000, 5_010  # after a long result
    assert value("overlong", sample, budget=50, cache=20) == 0


@given(trajectories, st.integers(1, 8))
def test_step_efficiency_is_the_share_of_turns_that_an_answer_left(
    sample: Trajectory, budget: int
) -> None:
    turns = sum(not one.detour for one in sample.steps)
    answered = sample.stop_reason is StopReason.ANSWERED and bool(sample.steps)
    expected = max(0.0, 1 - turns / budget) if answered else 0.0
    assert value("step_efficiency", sample, budget=budget) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", list(TERMS))
def test_a_trajectory_without_a_turn_is_worth_nothing(kind: Any) -> None:
    assert TERMS[kind](trajectory(stop_reason=StopReason.MAX_TOKENS), term(kind)) == []
