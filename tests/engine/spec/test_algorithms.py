"""Algorithms of a stage: presets, their parts, other projects' names, and what is refused."""

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
    assert dict(how.bounds) == {"eps_low": 0.2, "eps_high": 0.28}


def test_another_loss_brings_its_own_bounds_and_drops_the_correction() -> None:
    how = read(algorithm="rloo", loss="cispo").resolved()
    assert (how.correction, dict(how.bounds)) == ("none", {"weight_max": 5.0})


def test_cispo_reads_its_cap_in_both_conventions() -> None:
    assert read(eps_high=3.0).resolved().bounds["weight_max"] == 4.0
    assert read(weight_max=4.0).resolved().bounds["weight_max"] == 4.0


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
        ({"adv_estimator": "gae"}, "stages.1", "adv_estimator 'gae' has no counterpart"),
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
        ({"algorithm": "ppo"}, "algorithm", "Input should be"),
    ],
)
def test_what_cannot_be_honoured_is_refused_at_its_fields(
    stage: dict[str, Any], path: str, part: str
) -> None:
    assert part in problems(**stage)[path]
