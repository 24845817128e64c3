"""Peak attention logits under AdamW, Muon, Muon with decay and MuonClip, at two learning rates.

Two softmax layers learn to copy eight random tokens, with the engine's model, optimizers and
QK-Clip. MuonClip's authors clip at 100; models of this size hardly get there: tau is scaled down.
"""

import math
from collections.abc import Iterable
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
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import SOFTMAX
from engine.models.hybrid.watched_logits import watched_logits
from engine.models.logprobs import token_logprobs
from engine.optim.optimizer import StageOptimizer
from engine.optim.qk_clip import QkClip
from engine.spec import OptimizerSpec

RATES = (3e-3, 5e-3)
KINDS = ("adamw", "muon", "muon+decay", "muonclip")
SLACK = 1.25  # the bound is soft: a maximum is measured before the step that it follows
EQUAL = 0.01  # nats a token: losses that differ less are equal


@dataclass(frozen=True)
class Settings:
    """The task, the model and the training of a run."""

    revision: int = 2
    symbols: int = 16
    copied: int = 8
    rows: int = 32
    width: int = 64
    heads: int = 4
    steps: int = 300
    warmup: int = 100
    last: int = 20  # steps whose mean loss is the end's
    decay: float = 0.1
    tau: float = 15.0


def arm_of(kind: str, rate: float) -> str:
    return f"{kind} {rate:g}"


def optimizer_of(settings: Settings, arm: str) -> OptimizerSpec:
    kind, rate = arm.split()
    return OptimizerSpec(
        kind="adamw" if kind == "adamw" else "muon",
        muon_scale="original" if kind == "adamw" else "match_rms_adamw",
        lr=float(rate),
        weight_decay=settings.decay if kind in ("muon+decay", "muonclip") else 0.0,
        warmup_steps=settings.warmup,
        decay_share=0.2,
    )


def run_one(settings: Settings, arm: str, seed: int) -> Outcome:
    """The largest logit and the loss of each step, and how many steps clipped a head."""
    torch.manual_seed(seed)
    model = HybridForCausalLM(
        HybridConfig(
            vocab_size=settings.symbols + 1,
            hidden_size=settings.width,
            num_attention_heads=settings.heads,
            intermediate_size=2 * settings.width,
            layer_types=[SOFTMAX] * 2,
        )
    )
    named = dict(model.named_parameters())
    spec = optimizer_of(settings, arm)
    optimizer = StageOptimizer(named, spec, settings.steps, model.fused_matrices(), model.tables())
    tau = settings.tau if arm.startswith("muonclip") else math.inf
    watcher = QkClip(named, model.softmax_projections(), tau)
    draws = torch.Generator().manual_seed(seed)
    logits, losses, clipped = [], [], 0
    for _ in range(settings.steps):
        ids = copies(settings, draws)
        largest = watcher.nothing_seen()
        with watched_logits(model, largest, torch.full_like(ids, ids.shape[1])):
            hidden = model.hidden(ids)[:, settings.copied : -1].flatten(0, 1)
        targets = ids[:, settings.copied + 1 :].flatten()
        loss = -token_logprobs(hidden, model.head_weight, targets).logprobs.mean()
        for parameter in named.values():
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        clipped += watcher.clip(largest)["qk_clipped_heads"] > 0
        logits.append(float(largest.max()))
        losses.append(float(loss.detach()))
    return {
        "peak_logit": max(logits),
        "end_loss": sum(losses[-settings.last :]) / settings.last,
        "clipped_steps": clipped,
        "logits": [round(logit, 3) for logit in logits],
    }


def copies(settings: Settings, draws: torch.Generator) -> Tensor:
    """Rows of random symbols, a sign to copy them, and the symbols again."""
    symbols = torch.randint(settings.symbols, (settings.rows, settings.copied), generator=draws)
    sign = torch.full((settings.rows, 1), settings.symbols)
    return torch.cat([symbols, sign, symbols], dim=1)


def judge(results: Results) -> dict[str, Verdict]:
    tau = SETTINGS.tau
    peaks = {
        arm: [float(peak) for peak in results.of(arm, "peak_logit")] for arm in EXPERIMENT.arms
    }
    means = {arm: mean_interval(values) for arm, values in peaks.items()}
    above = {
        f"Muon's peak less AdamW's at {rate:g}": paired(
            peaks[arm_of("muon", rate)], peaks[arm_of("adamw", rate)]
        )
        for rate in RATES
    }
    decayed = {f"peak of {arm}": means[arm] for arm in _arms("muon+decay")}
    clipped = _arms("muonclip")
    worst = max(max(peaks[arm]) for arm in clipped)
    saved = {
        f"peak of muonclip less {kind}'s at {rate:g}": paired(
            peaks[arm_of("muonclip", rate)], peaks[arm_of(kind, rate)]
        )
        for rate in RATES
        for kind in ("muon", "adamw")
    }
    lost = {
        f"loss of muonclip less {kind}'s at {rate:g}": paired(
            results.of(arm_of("muonclip", rate), "end_loss"),
            results.of(arm_of(kind, rate), "end_loss"),
        )
        for rate in RATES
        for kind in ("muon", "adamw")
    }
    steps = [sum(results.of(arm, "clipped_steps")) / len(results.seeds) for arm in clipped]
    return {
        "grows": Verdict(
            all(difference.lower > 0 for difference in above.values()),
            "The rule: Muon's mean peak is above AdamW's at both rates, by the intervals. "
            f"It is at {_held(gap.lower > 0 for gap in above.values())}.",
            {f"peak of {arm}": means[arm] for arm in (*_arms("adamw"), *_arms("muon"))} | above,
        ),
        "decay": Verdict(
            all(mean.lower > SLACK * tau for mean in decayed.values()),
            f"The rule: the mean peak with decay {SETTINGS.decay:g} is above {SLACK * tau:g}, a "
            f"quarter above MuonClip's tau, at both rates, by the intervals. It is at "
            f"{_held(mean.lower > SLACK * tau for mean in decayed.values())}.",
            decayed,
        ),
        "below": Verdict(
            all(less.upper < 0 for less in saved.values()),
            "The rule: the peaks of Muon and of AdamW are above MuonClip's at both rates, by the "
            "intervals.",
            {f"peak of {arm}": means[arm] for arm in clipped} | saved,
        ),
        "bounds": Verdict(
            worst <= SLACK * tau,
            f"The rule: no step of any run shows a logit above {SLACK * tau:g}, a quarter "
            f"more than tau: a maximum is measured before the update that it follows. The largest "
            f"was {worst:.1f}; a head was clipped in {steps[0]:.0f} and {steps[1]:.0f} of "
            f"{SETTINGS.steps} steps on average.",
            {},
        ),
        "free": Verdict(
            all(more.upper < EQUAL for more in lost.values()),
            f"The rule: MuonClip's loss at the end is less than {EQUAL:g} nats a token "
            "above the others' at both rates, by the intervals.",
            lost,
        ),
    }


def _held(at_rates: Iterable[bool]) -> str:
    return " and ".join(f"{r:g}" for r, held in zip(RATES, at_rates, strict=True) if held) or "none"


def _arms(kind: str) -> list[str]:
    return [arm_of(kind, rate) for rate in RATES]


def draw(results: Results, panels: list[Any]) -> None:
    """The largest logit over the steps, a panel for each rate: mean and range of the seeds."""
    for panel, rate in zip(panels, RATES, strict=True):
        for kind, colour in zip(KINDS, COLOURS, strict=False):
            runs = results.of(arm_of(kind, rate), "logits")
            steps = list(zip(*runs, strict=True))[::2]
            at = range(1, 2 * len(steps), 2)
            lowest, highest = [min(step) for step in steps], [max(step) for step in steps]
            panel.fill_between(at, lowest, highest, color=colour, alpha=0.15, linewidth=0)
            mean = [sum(step) / len(step) for step in steps]
            panel.plot(at, mean, color=colour, linewidth=1.2, label=kind)
        panel.axhline(SETTINGS.tau, color="#555555", linewidth=0.8, linestyle="--")
        panel.set_title(f"learning rate {rate:g}; dashed: tau")
        panel.set_xlabel("step")
        panel.set_ylabel("largest logit")
    panels[0].legend()


SETTINGS = Settings()
EXPERIMENT = Experiment(
    name="muonclip",
    settings=SETTINGS,
    arms=tuple(arm_of(kind, rate) for rate in RATES for kind in KINDS),
    claims=(
        Claim(
            "grows",
            "At an equal learning rate Muon drives attention logits higher than AdamW does.",
            "Kimi K2, 2507.20534, section 2.1",
        ),
        Claim(
            "decay",
            "Weight decay alone does not bound Muon's attention logits.",
            "Kimi K2, 2507.20534, section 2.1",
        ),
        Claim(
            "below",
            "MuonClip's largest attention logit stays below Muon's and AdamW's.",
            "Kimi K2, 2507.20534, section 2.1",
        ),
        Claim(
            "bounds",
            "QK-Clip keeps the largest attention logit at tau.",
            "Kimi K2, 2507.20534, section 2.1",
        ),
        Claim(
            "free",
            "MuonClip's loss is no higher than Muon's and AdamW's.",
            "Kimi K2, 2507.20534, section 2.1",
        ),
    ),
    budget=(
        "two softmax layers of width 64, 300 steps of 32 rows that copy eight of 16 symbols, the "
        "same data for all arms of a seed; AdamW learnt the task at the higher rate on each of "
        "eight other seeds; tau is 15, scaled down from 100 to what a model of this size reaches"
    ),
    run_one=run_one,
    judge=judge,
    draw=draw,
    panels=2,
)
run = EXPERIMENT.run
