"""Rewards: terms on known trajectories, weighted sums, and what is invalid instead of zero."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory
from engine.rewards import RewardScheme, RewardTerm, score
from engine.rewards.terms import TERMS

KINDS = list(TERMS)


def call(error: str | None) -> ToolCall:
    return ToolCall("call_1", "lookup", {}, "", error, 0.0)


def step(error: str | None = None, answer: str | None = None, detour: bool = False) -> Step:
    made = None if answer is not None else call(error)
    return Step(0, 0, 0, 0, "", call=made, answer=answer, detour=detour)


def trajectory(*steps: Step, **fields: Any) -> Trajectory:
    return Trajectory(
        **{
            "id": "t",
            "task_id": "task",
            "group_id": "g",
            "category": "1 hop",
            "prompt": "",
            "answer": "Euro",
            "segments": [Segment([], [], [], [])],
            "steps": list(steps),
            "stop_reason": StopReason.ANSWERED,
            "reward": Reward(None, False),
            "success": False,
            "worker": "w",
            "started_at": "2026-01-01T00:00:00+00:00",
            "duration_s": 0.0,
            "sampled_tokens": 150,
            **fields,
        }
    )


GOOD = trajectory(step(), step("unknown_entity"), step("invalid_json"), step(answer="Euro"))


@pytest.mark.parametrize(
    ("kind", "sample", "value"),
    [
        ("exact_answer", GOOD, 1.0),
        ("exact_answer", trajectory(step(answer="euro")), 0.0),
        ("exact_answer", trajectory(step(), stop_reason=StopReason.MAX_CALLS), 0.0),
        ("format", GOOD, 0.75),
        ("format", trajectory(stop_reason=StopReason.MAX_TOKENS), 0.0),
        ("format", trajectory(step("invalid_json", detour=True), step(answer="x")), 1.0),
        ("length", GOOD, 1.5),
        ("tool_errors", GOOD, 2 / 3),
        ("tool_errors", trajectory(step(answer="Euro")), 0.0),
    ],
)
def test_a_term_measures(kind: Any, sample: Trajectory, value: float) -> None:
    reward = score(RewardScheme(terms=[RewardTerm(kind=kind)]), sample)
    assert reward.valid and reward.value == pytest.approx(value)
    assert reward.terms == {kind: reward.value}


weights = st.dictionaries(st.sampled_from(KINDS), st.floats(-10, 10), min_size=1)


@given(weights)
def test_the_reward_is_the_weighted_sum_of_its_raw_terms(chosen: dict[Any, float]) -> None:
    scheme = RewardScheme(terms=[RewardTerm(kind=k, weight=w) for k, w in chosen.items()])
    reward = score(scheme, GOOD)
    assert reward.valid and reward.problem == "" and reward.value is not None
    assert set(reward.terms) == set(chosen)
    expected = math.fsum(weight * TERMS[kind](GOOD) for kind, weight in chosen.items())
    assert reward.value == pytest.approx(expected, abs=1e-9)


@given(weights, st.sampled_from([KeyError("x"), ZeroDivisionError(), math.nan, math.inf, "text"]))
def test_a_broken_term_makes_the_reward_invalid_and_never_zero(
    chosen: dict[Any, float], fault: Any
) -> None:
    def broken(_: Trajectory) -> Any:
        if isinstance(fault, Exception):
            raise fault
        return fault

    scheme = RewardScheme(terms=[RewardTerm(kind=k, weight=w) for k, w in chosen.items()])
    victim = next(iter(chosen))
    reward = score(scheme, GOOD, {**TERMS, victim: broken})
    assert not reward.valid and reward.value is None
    assert victim in reward.problem
    assert reward.terms[victim] is None
    assert all(reward.terms[kind] == TERMS[kind](GOOD) for kind in chosen if kind != victim)


@pytest.mark.parametrize("reason", [StopReason.INTERRUPTED, StopReason.INFRA_ERROR])
def test_what_the_policy_did_not_end_is_not_graded(reason: StopReason) -> None:
    reward = score(RewardScheme(), trajectory(step(), stop_reason=reason))
    assert not reward.valid and reward.value is None and reason.value in reward.problem


def test_a_sum_that_overflows_is_invalid() -> None:
    scheme = RewardScheme(terms=[RewardTerm(kind="length", weight=1e308)])
    assert score(scheme, trajectory(step(), sampled_tokens=10**6)).value is None


@pytest.mark.parametrize(
    "terms",
    [
        [],
        [{"kind": "beauty"}],
        [{"kind": "format", "weight": "1"}],
        [{"kind": "format", "weight": math.nan}],
        [{"kind": "format"}, {"kind": "format", "weight": 2.0}],
    ],
)
def test_a_scheme_refuses(terms: list[Any]) -> None:
    with pytest.raises(ValidationError):
        RewardScheme.model_validate({"terms": terms})
