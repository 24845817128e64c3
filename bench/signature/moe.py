"""PPO with a critic and a KL penalty beside CISPO with neither, on a hybrid with experts.

Lightning and softmax layers with four experts play the game of the rare fork at three learning
rates. What counts as a blow-up was fixed before the runs: see `blew_up`.
"""

import copy
import math
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median, variance
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
    wilson,
)
from bench.signature._fork import (
    Game,
    Rollout,
    Update,
    contexts,
    frozen,
    learn,
    logprobs,
    optimizer_of,
    play,
    policy,
    policy_losses,
)
from engine.algorithms.divergence import kl_estimate
from engine.algorithms.returns import generalised_advantages, whitened
from engine.algorithms.values import value_losses
from engine.models.hybrid import HybridForCausalLM
from engine.models.value_head import ValueHead
from engine.spec.algorithms import LOSS_BOUNDS, Loss

RATES = (1e-3, 3e-3, 1e-2)
ARMS = tuple(f"{kind}-{rate:g}" for kind in ("ppo", "cispo") for rate in RATES)
KL_LIMIT = 0.5  # nats a token from the policy that played, by k3, as the trainer's sampler_kl
NORM_LIMIT = 10.0  # of a gradient's norm, in medians of the run's first updates
FIRST = 32


@dataclass(frozen=True)
class Settings:
    """kl_weight, lam: TRL's defaults for PPO; value_clip: ours."""

    game: Game = Game(prior=0.01, experts=4)
    rollouts: int = 20
    groups: int = 32
    size: int = 16
    updates: int = 16
    kl_weight: float = 0.05
    lam: float = 0.95
    critic_lr: float = 1e-3
    value_clip: float = 0.5
    revision: int = 1


def run_one(settings: Settings, arm: str, seed: int) -> Outcome:
    kind, _, rate = arm.partition("-")
    game, draw = settings.game, torch.Generator().manual_seed(seed)
    model = policy(game, draw, seed)
    optimizer = optimizer_of(model, float(rate))
    critic = Critic(model, settings) if kind == "ppo" else None
    loss: Loss = "ppo" if critic else "cispo"

    def objective(current: Tensor, part: Rollout, rows: Tensor) -> Tensor:
        bounds = LOSS_BOUNDS[loss]
        return policy_losses(loss, bounds, current, part.behaviour, part.advantages)

    curve: list[float] = []
    updates: list[Update] = []
    for _ in range(settings.rollouts):
        played = play(model, game, settings.groups, settings.size, draw)
        curve.append(float(played.rewards.mean()))
        if critic is not None:
            played = critic.estimate(played, draw)
        updates += learn(model, optimizer, game, played, objective, settings.updates, draw)
    norms = [update.norm for update in updates]
    return {
        "rewards": curve,
        "losses": [update.loss for update in updates],
        "norms": norms,
        "kls": [update.kl for update in updates],
        "blew_up": blew_up([update.kl for update in updates], norms),
    }


def blew_up(kls: list[float], norms: list[float]) -> bool:
    """A KL above KL_LIMIT, a norm above NORM_LIMIT medians of the FIRST updates, or either not
    finite, at any update."""
    if not all(map(math.isfinite, [*kls, *norms])):
        return True
    return max(kls) > KL_LIMIT or max(norms) > NORM_LIMIT * median(norms[:FIRST])


def largest_fall(rewards: list[float]) -> float:
    """From the best rollout so far to a later one."""
    best = list(accumulate(rewards, max))
    return max(top - reward for top, reward in zip(best, rewards, strict=True))


class Critic:
    """A copy of the policy with a value head; the policy of its start is the reference."""

    def __init__(self, model: HybridForCausalLM, settings: Settings) -> None:
        self._settings, self._reference = settings, frozen(model)
        self._model = copy.deepcopy(model)
        self._head = ValueHead(model.config.hidden_size)
        self._parameters = [*self._model.parameters(), *self._head.parameters()]
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=settings.critic_lr, betas=(0.9, 0.98), weight_decay=0.0
        )

    def estimate(self, played: Rollout, draw: torch.Generator) -> Rollout:
        """The rollout with whitened GAE over rewards less the KL to the reference; then learns."""
        game = self._settings.game
        with torch.no_grad():
            reference = logprobs(self._reference, game, played.prompts, played.actions)
            before = self._values(played)
        rows, steps = before.shape
        given = -self._settings.kl_weight * kl_estimate(played.behaviour, reference, "k1")
        given[:, -1] += played.rewards
        sequence = torch.arange(rows).repeat_interleave(steps)
        found = generalised_advantages(
            given.flatten(), before.flatten(), sequence, lam=self._settings.lam
        )
        self._learn(played, found.returns.view_as(before), before, draw)
        return played._replace(advantages=whitened(found.advantages).view_as(before))

    def _values(self, played: Rollout) -> Tensor:
        ids = contexts(self._settings.game, played.prompts, played.actions)
        values: Tensor = self._head(self._model.hidden(ids))
        return values

    def _learn(
        self, played: Rollout, returns: Tensor, before: Tensor, draw: torch.Generator
    ) -> None:
        for rows in torch.randperm(len(returns), generator=draw).chunk(self._settings.updates):
            values = self._values(Rollout(*(one[rows] for one in played)))
            clip = self._settings.value_clip
            loss = value_losses(values, returns[rows], before[rows], clip).losses.mean()
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()


def judge(results: Results) -> dict[str, Verdict]:
    return {"stable": _stable(results), "variance": _variance(results)}


def _stable(results: Results) -> Verdict:
    """The share of blow-ups over the rates, by seed: the paired interval excludes 0."""
    shares, numbers = {}, {}
    for kind in ("ppo", "cispo"):
        by_rate = {rate: results.of(f"{kind}-{rate:g}", "blew_up") for rate in RATES}
        blown = [blown for runs in by_rate.values() for blown in runs]
        numbers[f"runs that blew up, {kind}"] = wilson(sum(blown), len(blown))
        shares[kind] = [fmean(seed) for seed in zip(*by_rate.values(), strict=True)]
        for rate in RATES:
            arm = f"{kind}-{rate:g}"
            numbers[f"largest KL, {arm}"] = mean_interval([max(k) for k in results.of(arm, "kls")])
            falls = [largest_fall(curve) for curve in results.of(arm, "rewards")]
            numbers[f"largest fall of the reward, {arm}"] = mean_interval(falls)
            ends = [fmean(curve[-5:]) for curve in results.of(arm, "rewards")]
            numbers[f"reward over the last 5 rollouts, {arm}"] = mean_interval(ends)
    gap = paired(shares["ppo"], shares["cispo"])
    ppo, cispo = (numbers[f"runs that blew up, {kind}"].value for kind in ("ppo", "cispo"))
    return Verdict(
        gap.lower > 0,
        f"{100 * ppo:.0f}% of the runs of PPO with KL and {100 * cispo:.0f}% of CISPO's without "
        f"blew up: a KL above {KL_LIMIT} nats a token or a gradient norm above {NORM_LIMIT:.0f} "
        f"times the median of the run's first {FIRST} updates, at any update.",
        {"share of PPO less share of CISPO": gap} | numbers,
    )


def _variance(results: Results) -> Verdict:
    """Variance of the loss over all updates of a run, mean over the rates, by seed."""
    found = {}
    for kind in ("ppo", "cispo"):
        by_rate = [results.of(f"{kind}-{rate:g}", "losses") for rate in RATES]
        found[kind] = [fmean(variance(run) for run in seed) for seed in zip(*by_rate, strict=True)]
    gap = paired(found["ppo"], found["cispo"])
    means = {kind: mean_interval(found[kind]) for kind in found}
    return Verdict(
        gap.lower > 0,
        f"Variance of the loss over the updates of a run: {means['ppo'].value:.3g} with PPO, "
        f"{means['cispo'].value:.3g} with CISPO.",
        {f"variance of the loss, {kind}": means[kind] for kind in means}
        | {"variance of PPO less variance of CISPO": gap},
    )


def draw(results: Results, panels: list[Any]) -> None:
    for kind, colour in (("ppo", COLOURS[0]), ("cispo", COLOURS[1])):
        for rate, style in zip(RATES, ("-", "--", ":"), strict=True):
            arm = f"{kind}-{rate:g}"
            rollouts = len(results.of(arm, "rewards")[0])
            for panel, name in zip(panels, ("rewards", "norms", "kls"), strict=True):
                each = torch.tensor(results.of(arm, name)).view(len(results.seeds), rollouts, -1)
                panel.plot(each.amax(2).mean(0), color=colour, linestyle=style, label=arm)
    panels[0].set(xlabel="rollouts", ylabel="reward, mean over seeds")
    panels[0].legend(fontsize=7)
    panels[1].set(xlabel="rollouts", ylabel="largest gradient norm", yscale="log")
    panels[2].set(xlabel="rollouts", ylabel="largest KL(behaviour || policy)", yscale="log")


EXPERIMENT = Experiment(
    name="moe",
    settings=Settings(),
    arms=ARMS,
    claims=(
        Claim(
            "stable",
            "On a hybrid with experts fewer runs of CISPO without KL blow up than of PPO with KL.",
            "MiniMax-M1, 2506.13585, which trained a hybrid with experts by CISPO without KL",
        ),
        Claim(
            "variance",
            "On a hybrid with experts the loss of CISPO without KL varies less than PPO's with KL.",
            "the mission of this project",
        ),
    ),
    budget="20 rollouts of 32 x 16 games in 16 updates each at each of three learning rates",
    run_one=run_one,
    judge=judge,
    draw=draw,
    panels=3,
)
run = EXPERIMENT.run
