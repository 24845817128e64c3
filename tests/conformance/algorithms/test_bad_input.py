"""Odd batches: a defined result, or a refusal that names what is wrong; never a silent zero."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.records.trajectory import Reward, Trajectory
from engine.spec.loading import problems_of
from engine.training.reinforcement import rl_step
from tests.conformance.algorithms.exact import STAGES, begun, make_groups, step, trajectory_of

every_preset = pytest.mark.parametrize("name", STAGES)


def unchanged(name: str, groups: list[list[Trajectory]]) -> dict[str, float]:
    """The figures of a step that must not move the policy."""
    trainer = begun(name)
    before = trainer.weights()
    figures = rl_step(trainer, groups)
    assert all(math.isfinite(value) for value in figures.values())
    assert all(torch.equal(before[key], value) for key, value in trainer.weights().items())
    return figures


GROUP_RELATIVE = [
    name
    for name in STAGES
    if name
    not in ("ppo", "reinforce", "reinforce_pp", "icepop", "kl in the reward", "kl in the loss")
]


@pytest.mark.parametrize("name", GROUP_RELATIVE)
@pytest.mark.parametrize("rewards", [[1.0], [1.0, 1.0, 1.0], [0.1 + 0.2, 0.3, 0.3]])
def test_groups_without_a_difference_teach_nothing_and_say_so(
    name: str, rewards: list[float]
) -> None:
    """A group of one, equal rewards, and rewards that differ by rounding."""
    group = [trajectory_of([False, True, True], one, seed=i) for i, one in enumerate(rewards)]
    assert unchanged(name, [group])["zero_variance_share"] == 1.0


@every_preset
def test_rewards_that_are_missing_are_left_out_and_counted(name: str) -> None:
    groups = make_groups(0)
    for group in groups:
        group[0].reward = Reward(None, False)
    figures, gradient, _ = step(begun(name), groups)
    assert figures["invalid_reward_share"] == pytest.approx(1 / 3)
    without = [group[1:] for group in groups]
    known, expected, _ = step(begun(name), without)
    assert figures["loss"] == pytest.approx(known["loss"], abs=1e-10)
    for key, value in gradient.items():
        assert float((value - expected[key]).abs().max()) < 1e-10
    for group in groups:
        for one in group:
            one.reward = Reward(None, False)
    assert unchanged(name, groups)["invalid_reward_share"] == 1.0


@every_preset
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_log_probabilities_that_are_none_are_refused(name: str, value: float) -> None:
    groups = make_groups(0)
    segment = groups[0][0].segments[0]
    segment.logprobs[segment.loss_mask.index(True)] = value
    with pytest.raises(ValueError, match=r"log-probability (nan|-?inf)"):
        rl_step(begun(name), groups)


@every_preset
@settings(max_examples=2, derandomize=True, deadline=None)
@given(rewards=st.lists(st.floats(-3, 3), min_size=2, max_size=3))
def test_one_token_is_enough(name: str, rewards: list[float]) -> None:
    group = [trajectory_of([False, True], one, seed=i) for i, one in enumerate(rewards)]
    figures = rl_step(begun(name), [group])
    assert all(math.isfinite(value) for value in figures.values())


@pytest.mark.parametrize("name", ["grpo", "gspo", "dapo", "dr_grpo"])
def test_clips_of_zero_leave_only_tokens_that_move_back(name: str) -> None:
    """With eps 0 a ratio above 1 is silent where the advantage is positive."""
    fields: dict[str, Any] = {"algorithm": name, "eps_low": 0.0, "eps_high": 0.0}
    spec, problems = problems_of(
        {"name": "zero", "stages": [{"kind": "synthesise"}, {"kind": "rl", **fields}]}
    )
    assert spec is not None and not problems
    figures = rl_step(begun(name), make_groups(1))
    assert math.isfinite(figures["loss"])


@pytest.mark.parametrize(
    ("fields", "said", "paths"),
    [
        (
            {"algorithm": "cispo", "eps_high": 4.0, "weight_max": 5.0},
            "keep one of them",
            {"eps_high", "weight_max"},
        ),
        ({"algorithm": "grpo", "kl_weight": 0.1}, "no reference", {"kl_weight"}),
        (
            {"loss_type": "dapo", "loss_agg_mode": "seq-mean-token-mean"},
            "keep one of them",
            {""},
        ),
        ({"algorithm": "grpo", "group_size": 1}, "group of one", {"group_size", "algorithm"}),
        ({"algorithm": "cispo", "correction": "truncated"}, "count it twice", {"correction"}),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_the_names_of_its_fields(
    fields: dict[str, Any], said: str, paths: set[str]
) -> None:
    spec, problems = problems_of(
        {"name": "odd", "stages": [{"kind": "synthesise"}, {"kind": "rl", **fields}]}
    )
    assert spec is None
    assert any(said in one.message for one in problems), problems
    named = {one.path.rpartition(".")[2] for one in problems}
    assert paths <= named or "" in paths, named
