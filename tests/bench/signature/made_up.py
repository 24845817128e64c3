"""An experiment that takes no time: arm `b` is better than arm `a` by `gap`."""

from dataclasses import dataclass
from typing import Any

from bench.signature import COLOURS, Claim, Experiment, Outcome, Results, Verdict, paired


@dataclass(frozen=True)
class Settings:
    gap: float = 1.0
    revision: int = 1


def run_one(settings: Settings, arm: str, seed: int) -> Outcome:
    return {"score": seed * 0.01 * (1 + (arm == "b")) + settings.gap * (arm == "b"), "curve": [0.0]}


def judge(results: Results) -> dict[str, Verdict]:
    gap = paired(results.of("b", "score"), results.of("a", "score"))
    return {"better": Verdict(gap.lower > 0, f"b - a is {gap.value:.2f}.", {"b - a": gap})}


def draw(results: Results, panels: list[Any]) -> None:
    for arm, colour in zip(("a", "b"), COLOURS, strict=False):
        panels[0].plot(results.seeds, results.of(arm, "score"), color=colour, label=arm)
    panels[0].legend()


def experiment(**settings: Any) -> Experiment:
    return Experiment(
        name="made_up",
        settings=Settings(**settings),
        arms=("a", "b"),
        claims=(Claim("better", "b is better than a.", "nobody"),),
        budget="no steps in each",
        run_one=run_one,
        judge=judge,
        draw=draw,
    )
