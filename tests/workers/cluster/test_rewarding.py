"""Rewards in the driver: what was completed in figures, and the weight of its curriculum."""

import json

import pytest

from engine.rewards import RewardCurriculum, RewardScheme, RewardTerm
from engine.spec import ExperimentSpec, RlStage, SynthesiseStage
from tests.engine.rewards.samples import step, trajectory
from workers.cluster.rewarding import Rewarding, sampling_metrics
from workers.cluster.rollout_stats import Tally, tally

PLAN = RewardCurriculum(process=["format"], steady_steps=3, ramp_steps=2, success_above=0.5)
TERMS = [RewardTerm(kind="exact_answer"), RewardTerm(kind="format", weight=2.0)]


def spec(curriculum: RewardCurriculum | None) -> ExperimentSpec:
    return ExperimentSpec(
        name="rewarded",
        reward=RewardScheme(terms=TERMS, curriculum=curriculum),
        stages=[SynthesiseStage(), RlStage()],
    )


def completed(scheme: RewardScheme) -> Tally:
    """Three groups: two solved, one of whose members broke a turn; one that failed."""
    from engine.rewards import give_reward

    sums = Tally()
    for group, answer in enumerate(("Euro", "Euro", "Yen")):
        members = [
            trajectory(step(), step(answer=answer), success=answer == "Euro", group_id=str(group)),
            trajectory(
                step("invalid_json"), step(answer=answer), success=answer == "Euro", group_id="g"
            ),
        ]
        for one in members:
            give_reward(scheme, one, 0.0)
        sums.add(tally(members))
    return sums


def test_without_a_curriculum_it_tells_the_terms_alone() -> None:
    rewarding = Rewarding(spec(None))
    seen = completed(RewardScheme(terms=TERMS))
    assert rewarding.look(seen) == "" and rewarding.process_weight is None
    assert rewarding.to_keep() is None
    assert rewarding.metrics(seen) == pytest.approx(
        {"reward/exact_answer": 2 / 3, "reward/format": 0.75}
    )


def test_a_curriculum_is_followed_and_told_and_survives_a_resume() -> None:
    plan = spec(PLAN)
    rewarding = Rewarding(plan)
    seen = completed(plan.reward)
    told = [rewarding.look(seen) for _ in range(3)]
    assert told[:2] == ["", ""] and "steady at 66.7% over 3 steps" in told[2]
    kept = json.loads(json.dumps(rewarding.to_keep()))
    resumed = Rewarding(plan, kept)
    assert resumed.process_weight == 0.0
    assert resumed.look(seen) == rewarding.look(seen) == ""
    assert resumed.metrics(seen) == pytest.approx(
        {
            "reward/exact_answer": 2 / 3,
            "reward/format": 0.75,
            "reward/process_weight": 0.15,
            "reward/outcome": 2 / 3,
            "reward/process": 1.5,
            "reward/process_correlation": 0.0,
        }
    )


def test_where_nothing_was_completed_the_weight_stays() -> None:
    rewarding = Rewarding(spec(PLAN))
    before = rewarding.to_keep()
    assert rewarding.look(Tally()) == ""
    assert rewarding.to_keep() == before
    assert rewarding.metrics(Tally()) == {"reward/process_weight": 0.0}


def test_it_tells_what_a_batch_took_to_sample() -> None:
    sampled = {"admitted": 4, "all_solved": 10, "all_failed": 2, "stale": 4}
    assert sampling_metrics(sampled, batch=6) == {
        "pool/refill_rounds": 4,
        "pool/all_solved_share": 0.5,
        "pool/all_failed_share": 0.1,
        "pool/sampled_per_accepted": 5,
    }
    assert sampling_metrics({}, batch=6) == {}
