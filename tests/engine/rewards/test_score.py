"""Rewards: weighted sums, the parts of steps, and what is invalid instead of zero."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.records.trajectory import StopReason, Trajectory
from engine.rewards import RewardScheme, RewardTerm, give_reward, score
from engine.rewards.terms import TERMS
from tests.engine.rewards.samples import KINDS, step, term, terms, trajectories, trajectory

GOOD = trajectory(
    step(tokens=50), step("unknown_entity"), step("invalid_json"), step(answer="Euro", tokens=30)
)


@given(terms, trajectories)
def test_the_reward_is_the_weighted_sum_of_its_raw_terms(
    chosen: list[RewardTerm], sample: Trajectory
) -> None:
    reward = score(RewardScheme(terms=chosen), sample)
    assert reward.valid and reward.problem == "" and reward.value is not None
    assert set(reward.terms) == {one.kind for one in chosen}
    expected = math.fsum(one.weight * reward.terms[one.kind] for one in chosen)
    assert reward.value == pytest.approx(expected, abs=1e-9)


@given(terms, trajectories)
def test_the_parts_of_the_steps_add_up_to_the_reward(
    chosen: list[RewardTerm], sample: Trajectory
) -> None:
    scheme = RewardScheme(terms=chosen)
    give_reward(scheme, sample)
    parts = [one.reward for one in sample.steps]
    assert sample.reward == score(scheme, sample)
    assert math.fsum(part for part in parts if part is not None) == sample.reward.value
    assert None not in parts


@given(terms, st.sampled_from([KeyError("x"), ZeroDivisionError(), math.nan, math.inf, "text"]))
def test_a_broken_term_makes_the_reward_invalid_and_never_zero(
    chosen: list[RewardTerm], fault: Any
) -> None:
    def broken(sample: Trajectory, _: RewardTerm) -> Any:
        if isinstance(fault, Exception):
            raise fault
        return [fault] * len(sample.steps)

    victim = chosen[0].kind
    reward = score(RewardScheme(terms=chosen), GOOD, {**TERMS, victim: broken})
    assert not reward.valid and reward.value is None
    assert victim in reward.problem
    assert reward.terms[victim] is None
    for one in chosen[1:]:
        assert reward.terms[one.kind] == math.fsum(TERMS[one.kind](GOOD, one))


def test_a_term_that_forgets_a_step_makes_the_reward_invalid() -> None:
    reward = score(RewardScheme(), GOOD, {**TERMS, "exact_answer": lambda *_: [1.0]})
    assert not reward.valid and "1 parts for 4 steps" in reward.problem


@pytest.mark.parametrize(
    "reason", [StopReason.INTERRUPTED, StopReason.INFRA_ERROR, StopReason.TIMED_OUT]
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_policy_did_not_end_is_not_graded(reason: StopReason, kind: Any) -> None:
    sample = trajectory(step("timeout"), stop_reason=reason)
    sample.steps[0].reward = 3.0
    give_reward(RewardScheme(terms=[term(kind, -1.5)]), sample)
    assert not sample.reward.valid and sample.reward.value is None
    assert reason.value in sample.reward.problem
    assert sample.steps[0].reward is None


def test_a_sum_that_overflows_is_invalid() -> None:
    scheme = RewardScheme(terms=[RewardTerm(kind="length", weight=1e308)])
    reward = score(scheme, trajectory(step(), step(), sampled_tokens=10**6))
    assert reward.value is None and "weighted sum" in reward.problem


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], "at least 1"),
        ([{"kind": "beauty"}], "exact_answer"),
        ([{"kind": "format", "weight": "1"}], "number"),
        ([{"kind": "format", "weight": math.nan}], "finite"),
        ([{"kind": "format"}, {"kind": "format", "weight": 2.0}], "given twice: format"),
        ([{"kind": "format", "budget": 3}], "format does not read budget"),
        ([{"kind": "step_efficiency", "budget": 3, "cache": 1}], "does not read cache"),
        ([{"kind": "step_efficiency"}], "step_efficiency needs budget"),
        ([{"kind": "overlong"}], "overlong needs budget and cache"),
        ([{"kind": "overlong", "budget": 10, "cache": 11}], "no part of 10"),
        ([{"kind": "overlong", "budget": 0, "cache": 0}], "greater than or equal to 1"),
    ],
)
def test_a_scheme_refuses(wrong: list[Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RewardScheme.model_validate({"terms": wrong})


def curriculum(*process: str, **fields: float) -> dict[str, Any]:
    return {"process": list(process), **fields}


PLANNED = RewardScheme.model_validate(
    {
        "terms": [
            {"kind": "exact_answer", "weight": 2.0},
            {"kind": "overlong", "weight": 0.5, "budget": 100, "cache": 40},
            {"kind": "format", "weight": 1.0},
            {"kind": "tool_error_count", "weight": -1.0},
        ],
        "curriculum": curriculum("format", "tool_error_count", cap=0.25),
    }
)


@given(trajectories, st.floats(0, 1))
def test_process_terms_come_in_with_their_weight_and_under_their_cap(
    sample: Trajectory, weight: float
) -> None:
    give_reward(PLANNED, sample, weight)
    reward = sample.reward
    raw = reward.terms
    outcome = 2 * raw["exact_answer"] + 0.5 * raw["overlong"]
    process = raw["format"] - raw["tool_error_count"]
    assert (reward.outcome, reward.process) == (
        pytest.approx(outcome, abs=1e-12),
        pytest.approx(process, abs=1e-12),
    )
    assert reward.process_weight == weight
    most = 0.25 * 2.0
    added = max(-most, min(most, weight * process))
    assert reward.value == pytest.approx(outcome + added, abs=1e-9)
    assert math.fsum(one.reward or 0.0 for one in sample.steps) == reward.value


@given(trajectories, trajectories, st.floats(0, 1))
def test_no_failure_is_worth_more_than_a_success(
    one: Trajectory, other: Trajectory, weight: float
) -> None:
    scheme = RewardScheme.model_validate(
        {
            "terms": [
                {"kind": "exact_answer", "weight": 0.8},
                {"kind": "tool_error_count", "weight": -50.0},
                {"kind": "length", "weight": 50.0},
            ],
            "curriculum": curriculum("tool_error_count", "length", cap=0.49),
        }
    )
    first, second = (score(scheme, sample, process_weight=weight) for sample in (one, other))
    if first.terms["exact_answer"] > second.terms["exact_answer"]:
        assert first.value > second.value


def test_at_a_weight_of_zero_the_outcome_is_all() -> None:
    plain = RewardScheme.model_validate({"terms": [{"kind": "exact_answer", "weight": 2.0}]})
    sample = trajectory(step("invalid_json"), step(answer="Euro"))
    assert score(PLANNED, sample, process_weight=0.0).value == score(plain, sample).value == 2.0


@pytest.mark.parametrize(
    ("terms", "plan", "said"),
    [
        (["exact_answer"], curriculum("format"), "format, which is no term"),
        (["exact_answer", "format"], curriculum("exact_answer"), "is the outcome"),
        (["format"], curriculum("format"), "exact_answer needs a weight above 0"),
        (["exact_answer", "format"], curriculum("format", "format"), "twice"),
        (["exact_answer", "format"], curriculum(), "at least 1"),
        (["exact_answer", "format"], curriculum("format", cap=0.5), "less than 0.5"),
        (["exact_answer", "format"], curriculum("format", weight_max=math.nan), "finite"),
    ],
)
def test_a_curriculum_refuses(terms: list[str], plan: dict[str, Any], said: str) -> None:
    data = {"terms": [{"kind": kind} for kind in terms], "curriculum": plan}
    with pytest.raises(ValidationError, match=said):
        RewardScheme.model_validate(data)
