"""PPO with a critic beside CISPO on experts: what blows up, and the verdicts on made-up results."""

import math
from dataclasses import replace

import pytest
import torch

from bench.signature import Results, _fork, moe
from bench.signature._fork import Game

TINY = moe.Settings(
    game=Game(prior=0.05, width=16, experts=4, cold_start=20),
    rollouts=2,
    groups=4,
    size=4,
    updates=2,
)


@pytest.mark.parametrize("arm", ["ppo-0.001", "cispo-0.01"])
def test_a_run_is_told_by_its_seed(arm: str) -> None:
    assert arm in moe.ARMS
    first = moe.run_one(TINY, arm, 3)
    assert first == moe.run_one(TINY, arm, 3)
    assert len(first["losses"]) == len(first["norms"]) == len(first["kls"]) == 4


def test_a_critic_learns_what_the_game_pays() -> None:
    draw = torch.Generator().manual_seed(0)
    settings = replace(TINY, kl_weight=0.0, updates=8, critic_lr=1e-2)
    model = _fork.policy(settings.game, draw, 0)
    critic = moe.Critic(model, settings)
    played = _fork.play(model, settings.game, 16, 8, draw)._replace(rewards=torch.full((128,), 1.0))
    first = critic.estimate(played, draw).advantages
    for _ in range(12):
        critic.estimate(played, draw)
    values = critic._values(played)
    assert first.mean().item() == pytest.approx(0, abs=1e-5)
    assert values.mean().item() == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize(
    ("kls", "norms", "blown"),
    [
        ([0.1, 0.49], [1.0, 9.0], False),
        ([0.1, 0.51], [1.0, 1.0], True),
        ([0.1] * 3, [1.0, 1.0, 10.5], True),
        ([0.1], [math.nan], True),
    ],
)
def test_a_blow_up_is_a_kl_or_a_norm_too_far(
    kls: list[float], norms: list[float], blown: bool
) -> None:
    assert moe.blew_up(kls, norms) is blown


def test_a_fall_is_from_the_best_so_far() -> None:
    assert moe.largest_fall([0.2, 1.0, 0.4, 1.2]) == pytest.approx(0.6)


def made_up(blown: dict[str, bool], spread: dict[str, float]) -> Results:
    def outcome(arm: str, seed: int) -> dict[str, object]:
        kind = arm.partition("-")[0]
        losses = [0.0, spread[kind] * (1 + 0.01 * seed)]
        return {
            "blew_up": blown[kind], "losses": losses, "kls": [0.1, 0.2], "rewards": [0.0, 1.0],
            "norms": [1.0, 1.0],
        }  # fmt: skip

    return Results({arm: {s: outcome(arm, s) for s in range(5)} for arm in moe.ARMS})


def test_it_judges_by_intervals() -> None:
    good = made_up({"ppo": True, "cispo": False}, {"ppo": 2.0, "cispo": 1.0})
    assert [v.reproduced for v in moe.judge(good).values()] == [True, True]
    same = made_up({"ppo": True, "cispo": True}, {"ppo": 1.0, "cispo": 1.0})
    assert [v.reproduced for v in moe.judge(same).values()] == [False, False]
