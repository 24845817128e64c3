"""Rollouts of older policies: PPO's ratio to the behaviour policy beside decoupled corrections.

A hybrid of a lightning and a softmax layer plays the game of the rare fork. What step t learns
from, in 4 updates, was played by the policy before step t - lag. The reward is of the current one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bench.signature import (
    COLOURS,
    Claim,
    Experiment,
    Outcome,
    Results,
    Verdict,
    mean_interval,
    paired,
)
from bench.signature._fork import (
    Game,
    Rollout,
    frozen,
    learn,
    logprobs,
    optimizer_of,
    play,
    policy,
    policy_losses,
)
from engine.algorithms.corrections import correction_weights
from engine.spec.algorithms import CORRECTION_BOUNDS, LOSS_BOUNDS, Correction

LAGS = (4, 12)
KINDS = ("ppo", "recomputed", "decoupled", "masked")
CORRECTIONS: Mapping[str, Correction] = {"decoupled": "truncated", "masked": "icepop"}
ARMS = ("fresh", *(f"{kind}-{lag}" for kind in KINDS for lag in LAGS))
LOSS = 0.1  # of 1.5: what staleness may cost at most to count as nothing


@dataclass(frozen=True)
class Settings:
    """lr: chosen on seeds 1000 and 1001 between 1e-3 and 3e-3. judged: last steps."""

    game: Game = Game(prior=0.01)
    steps: int = 40
    groups: int = 32
    size: int = 16
    updates: int = 4
    lr: float = 3e-3
    judged: int = 5
    revision: int = 1


def run_one(settings: Settings, arm: str, seed: int) -> Outcome:
    """Arms: fresh is lag 0, where all kinds are the same; KIND-LAG else."""
    kind, _, lag_text = arm.partition("-")
    lag = int(lag_text or 0)
    game, draw = settings.game, torch.Generator().manual_seed(seed)
    model = policy(game, draw, seed)
    optimizer = optimizer_of(model, settings.lr)
    first, played, curve, rho_max = frozen(model), [], [], 0.0
    for step in range(settings.steps):
        played.append(play(model, game, settings.groups, settings.size, draw))
        curve.append(float(played[-1].rewards.mean()))
        if step < lag:  # nothing that old exists: more of the first policy's
            stale = play(first, game, settings.groups, settings.size, draw)
        else:
            stale = played[step - lag]
        with torch.no_grad():
            old = logprobs(model, game, stale.prompts, stale.actions)
        rho_max = max(rho_max, float((old - stale.behaviour).exp().max()))
        factor = torch.ones_like(old)
        if kind in CORRECTIONS:
            factor = _factor(CORRECTIONS[kind], old - stale.behaviour)

        def objective(
            current: Tensor, part: Rollout, rows: Tensor, old: Tensor = old, factor: Tensor = factor
        ) -> Tensor:
            anchor = part.behaviour if kind in ("fresh", "ppo") else old[rows]
            losses = policy_losses("ppo", LOSS_BOUNDS["ppo"], current, anchor, part.advantages)
            return factor[rows] * losses

        learn(model, optimizer, game, stale, objective, settings.updates, draw)
    end = curve[-settings.judged :]
    return {"rewards": curve, "reward": sum(end) / len(end), "rho_max": rho_max}


def _factor(kind: Correction, log_rho: Tensor) -> Tensor:
    """Weights [rows, steps] of each token against the gap to the policy that sampled it."""
    rows, steps = log_rho.shape
    sequence = torch.arange(rows).repeat_interleave(steps)
    return correction_weights(kind, log_rho.flatten(), sequence, CORRECTION_BOUNDS[kind])[0].view(
        rows, steps
    )


def judge(results: Results) -> dict[str, Verdict]:
    reward = {arm: results.of(arm, "reward") for arm in ARMS}
    found = {arm: mean_interval(reward[arm]) for arm in ARMS}
    kept = {lag: paired(reward[f"decoupled-{lag}"], reward["fresh"]) for lag in LAGS}
    beside = {
        (kind, lag): paired(reward[f"decoupled-{lag}"], reward[f"{kind}-{lag}"])
        for kind in ("ppo", "recomputed", "masked")
        for lag in LAGS
    }
    told = ", ".join(f"{arm} {found[arm].value:.2f}" for arm in ARMS)
    return {
        "keeps": Verdict(
            all(gap.lower > -LOSS for gap in kept.values()),
            f"Reward over the last steps: {told}.",
            {f"reward, {arm}": found[arm] for arm in ARMS}
            | {f"decoupled - fresh, lag {lag}": kept[lag] for lag in LAGS},
        ),
        "naive": Verdict(
            all(beside["ppo", lag].lower > 0 for lag in LAGS),
            "PPO with its ratio to the behaviour policy ends "
            + " and ".join(f"{beside['ppo', lag].value:.2f} lower at lag {lag}" for lag in LAGS)
            + ".",
            {f"decoupled - ppo, lag {lag}": beside["ppo", lag] for lag in LAGS},
        ),
        "weight": Verdict(
            all(beside["recomputed", lag].lower > 0 for lag in LAGS),
            "Recomputed log-probabilities without any weight end "
            + " and ".join(f"{-beside['recomputed', lag].value:+.2f} at lag {lag}" for lag in LAGS)
            + " beside the weighted ones.",
            {
                f"decoupled - {kind}, lag {lag}": beside[kind, lag]
                for kind in ("recomputed", "masked")
                for lag in LAGS
            },
        ),
    }


def draw(results: Results, panels: list[Any]) -> None:
    fresh = torch.tensor(results.of("fresh", "rewards")).mean(0)
    for panel, lag in zip(panels, LAGS, strict=True):
        panel.plot(fresh, color="#888888", linestyle="--", label="lag 0")
        for kind, colour in zip(KINDS, COLOURS, strict=False):
            curves = torch.tensor(results.of(f"{kind}-{lag}", "rewards"))
            panel.plot(curves.mean(0), color=colour, label=kind)
            panel.fill_between(
                range(curves.shape[1]), curves.amin(0), curves.amax(0), color=colour, alpha=0.12
            )
        panel.set(xlabel="steps", ylabel="reward (mean, and all seeds)", title=f"lag {lag}")
    panels[0].legend()


EXPERIMENT = Experiment(
    name="lag",
    settings=Settings(),
    arms=ARMS,
    claims=(
        Claim(
            "keeps",
            "With the decoupled objective rollouts that are 4 and 12 steps old teach as much as "
            f"fresh ones, to within {LOSS} of 1.5.",
            "AReaL, 2505.24298, taken to this game",
        ),
        Claim(
            "naive",
            "PPO with its ratio to the behaviour policy loses by rollouts 4 and 12 steps old.",
            "AReaL, 2505.24298, taken to this game",
        ),
        Claim(
            "weight",
            "The weight against staleness is needed: recomputed log-probabilities as the anchor "
            "are not enough.",
            "decoupled PPO, 2110.00641, taken to this game",
        ),
    ),
    budget="40 steps of 32 x 16 games in 4 updates each, AdamW with one learning rate",
    run_one=run_one,
    judge=judge,
    draw=draw,
    panels=2,
)
run = EXPERIMENT.run
