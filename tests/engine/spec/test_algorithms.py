"""Algorithms of a stage: presets, their parts, other projects' names, and what is refused."""

import math
from typing import Any

import pytest

from engine.spec import RlStage
from engine.spec.loading import problems_of

SYNTHESISE = {"kind": "synthesise"}


def problems(**stage: Any) -> dict[str, str]:
    _, found = problems_of(
        {"name": "x", "stages": [SYNTHESISE, {"kind": "rl", "hops": [3, 4], **stage}]}
    )
    return {problem.path.removeprefix("stages.1."): problem.message for problem in found}


def read(**stage: Any) -> RlStage:
    spec, found = problems_of({"name": "x", "stages": [SYNTHESISE, {"kind": "rl", **stage}]})
    assert not found and spec is not None
    last = spec.stages[-1]
    assert isinstance(last, RlStage)
    return last


def test_a_stage_overrides_parts_of_its_preset() -> None:
    how = read(algorithm="grpo", aggregation="token-mean", eps_high=0.28).resolved()
    assert (how.advantage, how.loss, how.aggregation) == ("group_normalised", "ppo", "token-mean")
    assert dict(how.bounds) == {"eps_low": 0.2, "eps_high": 0.28, "dual_clip": math.inf}


def test_another_loss_brings_its_own_bounds_and_drops_the_correction() -> None:
    how = read(algorithm="rloo", loss="cispo").resolved()
    assert (how.correction, dict(how.bounds)) == ("none", {"weight_max": 5.0})


def test_cispo_reads_its_cap_in_both_conventions() -> None:
    assert read(eps_high=3.0).resolved().bounds["weight_max"] == 4.0
    assert read(weight_max=4.0).resolved().bounds["weight_max"] == 4.0


@pytest.mark.parametrize(
    ("said", "cap", "of_correction"),
    [
        ({}, 5.0, 2.0),
        ({"weight_max": 3.0}, 5.0, 3.0),
        ({"eps_high": 7.0}, 8.0, 2.0),
        ({"eps_high": 7.0, "weight_max": 3.0}, 8.0, 3.0),
    ],
)
def test_cispo_and_a_correction_beside_it_have_each_a_cap(
    said: dict[str, float], cap: float, of_correction: float
) -> None:
    how = read(anchor="old", epochs=2, correction="truncated", **said).resolved()
    assert dict(how.bounds) == {"weight_max": cap}
    assert dict(how.correction_bounds) == {"weight_max": of_correction}


def test_bounds_of_a_preset_are_of_its_own_loss() -> None:
    """DAPO's upper bound of 1.28 would never clip GSPO's ratio of a whole trajectory."""
    fields = {"loss": "gspo", "aggregation": "seq-mean-token-mean"}
    assert read(algorithm="dapo", **fields).resolved().bounds["eps_high"] == 4e-4


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"loss_type": "grpo"}, {"algorithm": "grpo"}),
        ({"loss_type": "dr_grpo"}, {"algorithm": "dr_grpo"}),
        ({"loss_type": "dapo"}, {"algorithm": "grpo", "aggregation": "token-mean"}),
        (
            {"adv_estimator": "rloo", "loss_mode": "vanilla", "loss_agg_mode": "token-mean"},
            {"advantage": "leave_one_out", "loss": "ppo", "aggregation": "token-mean"},
        ),
        (
            {"adv_estimator": "reinforce_plus_plus", "loss_mode": "vanilla"},
            {"algorithm": "reinforce_pp"},
        ),
        ({"algorithm": "cispo", "loss_type": "cispo"}, {"algorithm": "cispo"}),
    ],
)
def test_names_of_other_projects_mean_ours(theirs: dict[str, str], ours: dict[str, str]) -> None:
    assert read(**theirs).resolved() == read(**ours).resolved()


@pytest.mark.parametrize(
    ("stage", "path", "part"),
    [
        ({"loss_type": "sapo"}, "stages.1", "loss_type 'sapo' has no counterpart here"),
        ({"adv_estimator": "remax"}, "stages.1", "adv_estimator 'remax' has no counterpart"),
        (
            {"loss_type": "grpo", "loss_agg_mode": "token-mean"},
            "stages.1",
            "loss_agg_mode 'token-mean' means aggregation 'token-mean', and loss_type 'grpo' says",
        ),
        (
            {"loss_type": "dapo", "loss_agg_mode": "token-sum"},
            "stages.1",
            "loss_agg_mode 'token-sum' means aggregation 'token-sum', and loss_type 'dapo' says "
            "'token-mean'",
        ),
        (
            {"algorithm": "grpo", "loss_type": "cispo"},
            "stages.1",
            "means algorithm 'cispo', and algorithm says 'grpo'",
        ),
        ({"algorithm": "grpo", "correction": "truncated"}, "correction", "count it twice"),
        ({"algorithm": "gspo", "aggregation": "token-mean"}, "aggregation", "by their length"),
        ({"eps_high": 4.0, "weight_max": 5.0}, "weight_max", "keep one of them"),
        ({"eps_high": 4.0, "weight_max": 5.0}, "eps_high", "keep one of them"),
        ({"algorithm": "grpo", "weight_max": 5.0}, "weight_max", "does not read weight_max"),
        ({"algorithm": "cispo", "eps_low": 0.1}, "eps_low", "does not read eps_low"),
        ({"algorithm": "rloo", "weight_min": 0.1}, "weight_min", "does not read weight_min"),
        ({"algorithm": "ppo2"}, "algorithm", "Input should be"),
        ({"algorithm": "cispo", "dual_clip": 3.0}, "dual_clip", "does not read dual_clip"),
        (
            {"loss": "reinforce", "correction": "icepop", "weight_min": 6.0},
            "weight_min",
            "lies between",
        ),
        ({"kl_weight": 0.1}, "kl_weight", "no stage before it trains one"),
        ({"kl_kind": "k2"}, "kl_kind", "its weight is 0"),
        ({"kl_place": "loss"}, "kl_place", "its weight is 0"),
        ({"gae_lambda": 0.9}, "gae_lambda", "does not read gae_lambda"),
        ({"critic": {"value_clip": 1.0}}, "critic", "does not read critic"),
        ({"algorithm": "ppo", "step_weight": 2.0}, "step_weight", "does not read step_weight"),
        ({"group_size": 1}, "group_size", "a group of one has none to compare"),
        ({"minibatches": 25}, "minibatches", "24 groups cannot be dealt to 25 minibatches"),
        (
            {"algorithm": "ppo", "critic": {"warmup_steps": 70}},
            "critic.warmup_steps",
            "the policy would never learn",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_at_its_fields(
    stage: dict[str, Any], path: str, part: str
) -> None:
    assert part in problems(**stage)[path]


def test_a_reference_needs_a_stage_that_trains_before() -> None:
    after_sft = [SYNTHESISE, {"kind": "sft"}]
    for stage, path, part in (
        ({"kl_weight": 0.1}, "", ""),
        ({"kl_weight": 0.1, "kl_kind": "k1"}, "kl_kind", "k1 in the loss has no gradient"),
        ({"kl_weight": 0.1, "kl_place": "reward"}, "", ""),
        (
            {"kl_weight": 0.1, "kl_place": "reward", "advantage": "gigpo"},
            "advantage",
            "has no place for a KL term in the reward",
        ),
    ):
        _, found = problems_of({"name": "x", "stages": [*after_sft, {"kind": "rl", **stage}]})
        told = {one.path.removeprefix("stages.2."): one.message for one in found}
        assert (part in told[path]) if path else not told


def test_it_says_when_a_clip_is_inert() -> None:
    assert "its bounds are inert" in read(anchor="old").notice()
    assert not read(anchor="old", epochs=2).notice()
    assert not read(anchor="old", loss="reinforce").notice()
    assert not read().notice()


def test_dapo_raises_its_upper_bound_alone() -> None:
    bounds = read(algorithm="dapo").resolved().bounds
    assert (bounds["eps_low"], bounds["eps_high"]) == (0.2, 0.28)
    assert read(algorithm="dapo", eps_high=0.3).resolved().bounds["eps_high"] == 0.3
