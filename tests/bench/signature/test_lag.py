"""Stale rollouts: what an arm learns from, and the verdicts from made-up results."""

import pytest
import torch

from bench.signature import Results, lag
from bench.signature._fork import Game

TINY = lag.Settings(
    game=Game(prior=0.05, width=16, cold_start=20), steps=6, groups=4, size=4, updates=2, judged=2
)


@pytest.mark.parametrize("arm", ["fresh", "ppo-4", "masked-4"])
def test_a_run_is_told_by_its_seed(arm: str) -> None:
    first = lag.run_one(TINY, arm, 3)
    assert first == lag.run_one(TINY, arm, 3)
    assert len(first["rewards"]) == 6


def test_a_fresh_rollout_has_no_gap_and_an_old_one_has() -> None:
    assert lag.run_one(TINY, "fresh", 0)["rho_max"] == pytest.approx(1.0, abs=1e-4)
    assert lag.run_one(TINY, "recomputed-4", 0)["rho_max"] > 1.001


def test_the_weights_are_those_of_the_corrections() -> None:
    log_rho = torch.tensor([[0.1, 3.0], [0.4, 6.0]]).log()
    assert lag._factor("truncated", log_rho).tolist() == [
        [pytest.approx(0.1), 2.0],
        [pytest.approx(0.4), 2.0],
    ]
    assert lag._factor("icepop", log_rho).flatten().tolist() == [0, pytest.approx(3.0), 0, 0]


def made_up(**rewards: float) -> Results:
    def outcome(arm: str, seed: int) -> dict[str, object]:
        kind = arm.partition("-")[0]
        return {"reward": rewards[kind] + 0.001 * seed, "rewards": [0.0, 1.0]}

    return Results({arm: {s: outcome(arm, s) for s in range(5)} for arm in lag.ARMS})


def test_it_judges_by_intervals() -> None:
    good = made_up(fresh=1.0, ppo=0.4, recomputed=0.9, decoupled=0.95, masked=0.9)
    assert [v.reproduced for v in lag.judge(good).values()] == [True, True, True]
    bad = made_up(fresh=1.0, ppo=0.9, recomputed=0.9, decoupled=0.85, masked=0.9)
    assert [v.reproduced for v in lag.judge(bad).values()] == [False, False, False]
