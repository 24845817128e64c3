"""Composite and exploitable rewards from the start, beside outcome alone and beside a curriculum.

A tabular agent looks a chain of facts up and answers. Its episodes are graded by the reward schemes
and moved along by the curriculum that runs use; it learns from advantages within groups.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

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
from engine.algorithms.advantages import group_normalised
from engine.records.trajectory import Reward, Step, StopReason, ToolCall, Trajectory
from engine.rewards import RewardCurriculum, RewardScheme, RewardTerm, score
from engine.rewards.curriculum import CurriculumState, Look, advance
from engine.rewards.presets import TURNS, preset
from engine.rewards.scheme import TermKind
from engine.rewards.terms import TERMS, Term
from workers.cluster.rollout_stats import Tally, tally

# Arm -> (whose task, scheme). What a judge of steps says stands in for the term "format".
ARMS = {
    "outcome": ("short", "exact-answer"),
    "composite": ("short", "composite"),
    "composite, curriculum": ("short", "composite-curriculum"),
    "judge": ("short", "judge"),
    "judge, curriculum": ("short", "judge-curriculum"),
    "long, outcome": ("long", "exact-answer"),
    "long, progress": ("long", "progress"),
    "long, curriculum": ("long", "progress-curriculum"),
}
SLACK = 0.02  # of the success rate: what does not count as lower


@dataclass(frozen=True)
class Task:
    """facts: to be found one after the other; idle, broken: actions that find nothing, that fail.
    Of 8 calls at random the short chain is found now and then, the long one hardly ever."""

    facts: int
    idle: int
    broken: int

    @property
    def actions(self) -> int:
        """The right search, idle searches, broken calls, and the answer, in this order."""
        return 1 + self.idle + self.broken + 1


@dataclass(frozen=True)
class Settings:
    """lr: chosen on seeds 1000 and 1001 among 1 to 30, where outcome alone learns the short task.
    weight: of a judge's praise for one step."""

    short: Task = Task(facts=2, idle=2, broken=2)
    long: Task = Task(facts=5, idle=6, broken=4)
    iterations: int = 300
    groups: int = 8
    size: int = 8
    lr: float = 8.0
    weight: float = 0.2
    judged: int = 10
    revision: int = 1


Table = npt.NDArray[np.float64]  # logits [facts found, action]


def run_one(settings: Settings, arm: str, seed: int) -> Outcome:
    task_name, scheme_name = ARMS[arm]
    task: Task = getattr(settings, task_name)
    scheme, terms = scheme_of(scheme_name, settings.weight)
    plan, draw = scheme.curriculum, random.Random(seed)
    state = CurriculumState.first(plan) if plan is not None else None
    logits: Table = np.zeros((task.facts + 1, task.actions))
    curves: dict[str, list[float]] = {"success": [], "turns": [], "errors": [], "weight": []}
    for _ in range(settings.iterations):
        gradient, weighed, seen = np.zeros_like(logits), 0, Tally()
        probabilities = _softmax(logits)
        for group in range(settings.groups):
            played = [episode(task, probabilities, group, draw) for _ in range(settings.size)]
            for one, _ in played:
                one.reward = score(scheme, one, terms, state.weight if state else None)
            seen.add(tally([one for one, _ in played]))
            rewards = [one.reward.value for one, _ in played]
            for advantage, (_, moves) in zip(group_normalised(rewards), played, strict=True):
                for found, action in moves:
                    gradient[found] -= advantage * probabilities[found]
                    gradient[found, action] += advantage
                weighed += len(moves)
        logits += settings.lr * gradient / weighed  # a token mean
        curves["success"].append(seen.successes / seen.trajectories)
        curves["turns"].append(seen.turns / seen.trajectories)
        curves["errors"].append(seen.failed_calls / seen.trajectories)
        curves["weight"].append(state.weight if state else float(scheme_name != "exact-answer"))
        if plan is not None and state is not None:
            look = Look.of(seen.by_group, seen.by_trajectory)
            assert look is not None
            state, _ = advance(plan, state, look)
    ends = {name: fmean(curve[-settings.judged :]) for name, curve in curves.items()}
    return ends | {f"{name} by iteration": curve for name, curve in curves.items()}


def scheme_of(name: str, weight: float) -> tuple[RewardScheme, Mapping[TermKind, Term]]:
    """A scheme that ships, or one whose term "format" is what a judge says of each step."""
    kind, _, curriculum = name.partition("-")
    if kind not in ("judge", "progress"):
        return preset(name), TERMS
    plan = RewardCurriculum(process=["format"]) if curriculum else None
    terms = [RewardTerm(kind="exact_answer"), RewardTerm(kind="format", weight=weight)]
    scheme = RewardScheme(name=name, terms=terms, curriculum=plan)
    return scheme, {**TERMS, "format": _praised if kind == "judge" else _progress}


def _praised(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """A judge that likes searches: all that found something, and half of those that did not."""
    return [float(step.text in ("found", "idle 0")) for step in trajectory.steps]


def _progress(trajectory: Trajectory, term: RewardTerm) -> list[float]:
    """A judge who knows what was found."""
    return [float(step.text == "found") for step in trajectory.steps]


def episode(
    task: Task, probabilities: Table, group: int, draw: random.Random
) -> tuple[Trajectory, list[tuple[int, int]]]:
    """An episode of TURNS calls at most, and its moves: (facts found before, action)."""
    steps: list[Step] = []
    moves: list[tuple[int, int]] = []
    found, reason = 0, StopReason.MAX_CALLS
    for turn in range(TURNS):
        action = draw.choices(range(task.actions), probabilities[found])[0]
        moves.append((found, action))
        if action == task.actions - 1:
            steps.append(Step(turn, 0, turn, turn + 1, "answer", answer=str(found)))
            reason = StopReason.ANSWERED
            break
        error = "invalid_arguments" if action > task.idle else None
        text = f"idle {max(action - 1, 0) % 2}" if error is None else "broken"
        if action == 0 and found < task.facts:
            found, text = found + 1, "found"
        call = ToolCall(str(turn), "search", None, "", error, 0.0)
        steps.append(Step(turn, 0, turn, turn + 1, text, call=call))
    solved = reason is StopReason.ANSWERED and found == task.facts
    return (
        Trajectory(
            id="", task_id=str(group), group_id=str(group), category="", prompt="",
            answer=str(task.facts), segments=[], steps=steps, stop_reason=reason,
            reward=Reward(None, False), success=solved, worker="", started_at="",
            duration_s=0.0, sampled_tokens=len(steps),
        ),
        moves,
    )  # fmt: skip


def _softmax(logits: Table) -> Table:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    found: Table = powers / powers.sum(1, keepdims=True)
    return found


def judge(results: Results) -> dict[str, Verdict]:
    success = {arm: results.of(arm, "success") for arm in ARMS}
    rate = {arm: mean_interval(success[arm]) for arm in ARMS}
    turns = {arm: mean_interval(results.of(arm, "turns")) for arm in ARMS}
    errors = {arm: results.of(arm, "errors") for arm in ARMS}
    shown = {arm: (rate[arm].value, turns[arm].value) for arm in ARMS}
    return {
        "hack": _hack(success, shown),
        "composite": _composite(success, shown),
        "benefit": _benefit(success, errors),
        "stalled": _stalled(success, shown),
    }


Rates = dict[str, list[float]]
Shown = dict[str, tuple[float, float]]


def _said(shown: Shown, *arms: str) -> str:
    parts = [f"{arm}: success {shown[arm][0]:.2f} in {shown[arm][1]:.1f} turns" for arm in arms]
    return "; ".join(parts) + "."


def _hack(success: Rates, shown: Shown) -> Verdict:
    """The judge's reward ends below outcome alone, the curriculum does not, both by intervals."""
    lost = paired(success["outcome"], success["judge"])
    kept = paired(success["judge, curriculum"], success["outcome"])
    return Verdict(
        lost.lower > 0 and kept.lower > -SLACK,
        _said(shown, "outcome", "judge", "judge, curriculum"),
        {"success lost to the judge": lost, "curriculum - outcome": kept},
    )


def _composite(success: Rates, shown: Shown) -> Verdict:
    """The composite reward from the start ends below the curriculum, by the interval."""
    gap = paired(success["composite, curriculum"], success["composite"])
    return Verdict(
        gap.lower > 0,
        _said(shown, "outcome", "composite", "composite, curriculum"),
        {"success, curriculum - composite from the start": gap},
    )


def _benefit(success: Rates, errors: Rates) -> Verdict:
    """Fewer errors than outcome alone, at a success that is not lower, both by intervals."""
    fewer = paired(errors["outcome"], errors["composite, curriculum"])
    kept = paired(success["composite, curriculum"], success["outcome"])
    means = {arm: fmean(errors[arm]) for arm in ("outcome", "composite, curriculum")}
    return Verdict(
        fewer.lower > 0 and kept.lower > -SLACK,
        f"Failed calls an episode: {means['outcome']:.3f} with outcome alone, "
        f"{means['composite, curriculum']:.3f} with the curriculum.",
        {"failed calls saved an episode": fewer, "success, curriculum - outcome": kept},
    )


def _stalled(success: Rates, shown: Shown) -> Verdict:
    """On the long task the curriculum ends above outcome alone, by the interval."""
    gap = paired(success["long, curriculum"], success["long, outcome"])
    other = paired(success["long, progress"], success["long, outcome"])
    return Verdict(
        gap.lower > 0,
        _said(shown, "long, outcome", "long, curriculum", "long, progress"),
        {"success, curriculum - outcome": gap, "success, progress from the start - outcome": other},
    )


def draw(results: Results, panels: list[Any]) -> None:
    parts = (list(ARMS)[:3], [list(ARMS)[0], *list(ARMS)[3:5]], list(ARMS)[5:])
    for panel, arms in zip(panels, parts, strict=True):
        for arm, colour in zip(arms, COLOURS, strict=False):
            curves = np.array(results.of(arm, "success by iteration"))
            panel.plot(curves.mean(0), color=colour, label=arm)
        panel.set(xlabel="iterations", ylabel="success, mean over seeds", ylim=(-0.03, 1.03))
        panel.legend(fontsize=7)


EXPERIMENT = Experiment(
    name="curriculum",
    settings=Settings(),
    arms=tuple(ARMS),
    claims=(
        Claim(
            "hack",
            "A judge of steps that can be exploited is exploited where its reward counts from the "
            "start, and not where a curriculum brings it in.",
            "2509.03403 on mixing process rewards in; the curriculum is ours",
        ),
        Claim(
            "composite",
            "Completion x 0.8 + step efficiency x 0.2 - tool errors x 1.5 from the start learns "
            "less than the same terms brought in by a curriculum.",
            "the mission of this project",
        ),
        Claim(
            "benefit",
            "Process terms brought in by a curriculum lower tool errors at no less success than "
            "outcome alone.",
            "the mission of this project",
        ),
        Claim(
            "stalled",
            "Where outcome alone hardly ever succeeds, the curriculum learns the task.",
            "the mission of this project",
        ),
    ),
    budget="300 iterations of 8 groups of 8 episodes, one learning rate",
    run_one=run_one,
    judge=judge,
    draw=draw,
    panels=3,
    seeds=20,
)
run = EXPERIMENT.run
