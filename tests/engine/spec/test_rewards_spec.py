"""Reward terms and limits of sampling that nothing could honour are refused with their fields."""

from typing import Any

import pytest

from engine.spec import ExperimentSpec, RlStage, problems_of


def problems(reward: dict[str, Any] | None = None, **stage: Any) -> dict[str, str]:
    data: dict[str, Any] = {
        "name": "x",
        "environment": {"max_tokens": 160},
        "stages": [{"kind": "synthesise"}, {"kind": "rl", **stage}],
    }
    if reward is not None:
        data["reward"] = reward
    return {problem.path: problem.message for problem in problems_of(data)[1]}


def overlong(budget: int, cache: int) -> dict[str, Any]:
    return {"terms": [{"kind": "overlong", "budget": budget, "cache": cache}]}


def test_a_penalty_that_could_never_act_is_refused() -> None:
    found = problems(overlong(200, 40))
    assert set(found) == {"reward.terms.0.budget", "environment.max_tokens"}
    assert "begins above 160 sampled tokens" in found["reward.terms.0.budget"]
    assert problems(overlong(199, 40)) == {}


def test_a_term_that_lacks_a_field_is_refused_at_its_place() -> None:
    found = problems({"terms": [{"kind": "step_efficiency"}]})
    assert found == {"reward.terms.0": "step_efficiency needs budget"}


@pytest.mark.parametrize(
    ("stage", "spread"),
    [
        ({}, True),
        ({"algorithm": "grpo"}, True),
        ({"algorithm": "reinforce_pp_baseline"}, True),
        ({"algorithm": "reinforce"}, False),
        ({"algorithm": "reinforce_pp"}, False),
        ({"algorithm": "grpo", "advantage": "batch_whitened"}, False),
        ({"algorithm": "reinforce", "dynamic_sampling": True}, True),
        ({"dynamic_sampling": False}, False),
    ],
)
def test_groups_need_spread_where_the_advantage_compares_them(
    stage: dict[str, Any], spread: bool
) -> None:
    made = RlStage(**stage)
    assert made.needs_spread() == spread
    assert made.sampling_rounds() == (100 if spread else None)
    assert made.needs_reward()


def test_rounds_that_nothing_reads_are_refused() -> None:
    assert problems(refill_rounds=3) == {}
    assert RlStage(refill_rounds=3).sampling_rounds() == 3
    for stage, named in (
        ({"dynamic_sampling": False}, "dynamic_sampling"),
        ({"algorithm": "reinforce"}, "algorithm"),
    ):
        found = problems(refill_rounds=3, **stage)
        assert set(found) == {"stages.1.refill_rounds", f"stages.1.{named}"}


def test_it_is_launched_with_its_curriculum() -> None:
    reward = {
        "terms": [{"kind": "exact_answer"}, {"kind": "format"}],
        "curriculum": {"process": ["format"]},
    }
    assert problems(reward) == {}
    spec = ExperimentSpec.model_validate(
        {"name": "x", "reward": reward, "stages": [{"kind": "synthesise"}]}
    )
    assert spec.reward.curriculum is not None and spec.reward.curriculum.weight_max == 0.3
