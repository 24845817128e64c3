"""The game of the rare fork, and the verdicts on CISPO from made-up results."""

import pytest
import torch

from bench.signature import Results, _fork, cispo
from bench.signature._fork import FORK, Game

TINY = cispo.Settings(
    game=Game(prior=0.05, width=16, cold_start=30), rollouts=2, groups=4, size=4, updates=2
)


def test_the_best_game_pays_one_and_a_half() -> None:
    game = Game(prior=0.01)
    prompts = torch.arange(game.prompts)
    late = torch.arange(game.early, game.steps)
    key = 1 + (prompts[:, None] * 5 + late * 3) % (game.actions - 1)
    other = torch.full((game.prompts, game.early), 3)
    assert _fork.rewards(game, prompts, torch.cat([other, key], 1)).tolist() == [0.5] * 8
    other[:, 1] = FORK
    assert _fork.rewards(game, prompts, torch.cat([other, key], 1)).tolist() == [1.5] * 8
    assert _fork.rewards(game, prompts, torch.cat([other, key * 0], 1)).tolist() == [1.0] * 8


def test_the_cold_start_makes_the_fork_as_rare_as_asked() -> None:
    game = Game(prior=0.02)
    draw = torch.Generator().manual_seed(1000)
    model = _fork.policy(game, draw, 1000)
    played = _fork.play(model, game, 64, 16, draw)
    assert (played.actions == FORK).float().mean() == pytest.approx(0.02, abs=0.01)
    assert played.behaviour.exp().mean() < 0.2
    groups = played.advantages[:, 0].view(64, 16)
    assert groups.sum(1) == pytest.approx(torch.zeros(64), abs=1e-4)


@pytest.mark.parametrize("arm", cispo.ARMS)
def test_a_run_is_told_by_its_seed(arm: str) -> None:
    first = cispo.run_one(TINY, arm, 3)
    assert first == cispo.run_one(TINY, arm, 3)
    assert len(first["rewards"]) == 2
    assert first != cispo.run_one(TINY, arm, 4)


def test_ppo_silences_a_token_that_left_the_band_and_cispo_does_not() -> None:
    current = torch.tensor([[0.0, 0.5]], requires_grad=True)
    for arm, silent in (("ppo", [False, True]), ("cispo", [False, False])):
        losses = _fork.policy_losses(*cispo.ARMS[arm], current, torch.zeros(1, 2), torch.ones(1, 2))
        (gradient,) = torch.autograd.grad(losses.sum(), current)
        assert (gradient == 0)[0].tolist() == silent


def made_up(silent: dict[str, float], rollouts: dict[str, int]) -> Results:
    def outcome(arm: str, seed: int) -> dict[str, object]:
        return {
            "rare": 10,
            "silent_share": silent[arm],
            "rollouts_to_threshold": rollouts[arm] + seed % 2,
            "reached": True,
            "rewards": [0.0, 1.0],
            "entropies": [2.0, 1.0],
        }

    return Results({arm: {s: outcome(arm, s) for s in range(5)} for arm in cispo.ARMS})


def test_it_judges_by_intervals() -> None:
    silent = {"ppo": 0.4, "dapo": 0.3, "gspo": 0.6, "cispo": 0.0}
    good = made_up(silent, {"ppo": 20, "dapo": 30, "gspo": 40, "cispo": 10})
    assert all(verdict.reproduced for verdict in cispo.judge(good).values())
    bad = made_up({**silent, "cispo": 0.01}, {"ppo": 20, "dapo": 15, "gspo": 9, "cispo": 10})
    assert not any(verdict.reproduced for verdict in cispo.judge(bad).values())


def test_runs_that_never_get_there_are_named() -> None:
    results = made_up(dict.fromkeys(cispo.ARMS, 0.0), dict.fromkeys(cispo.ARMS, 10))
    results.runs["gspo"][0]["reached"] = False  # type: ignore[index]
    assert "1 runs never reached it" in cispo.judge(results)["sooner"].reading
