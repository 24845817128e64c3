"""Evaluations of an attempt: rollout workers play tasks with frozen weights, and what came of it
is reported, kept on the run's storage, and compared between stages."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.evaluation.comparison import compare
from engine.evaluation.outcomes import Outcome
from engine.evaluation.plan import EvaluationPlan
from engine.evaluation.report import metrics, report
from engine.evaluation.trials import parts, trials
from engine.records.events import EvaluationDone, TrialRows
from engine.spec import EvaluateStage
from engine.spec.dry_run import JUDGED
from engine.spec.lineage import TrainedStage, ancestors, parent_of
from workers.cluster import limits
from workers.cluster.attempt import Attempt
from workers.cluster.seats import Call

TOLD_EVERY_S = 2.0


@dataclass(frozen=True)
class Pending:
    """An evaluation under way, of the weights after a step of a stage."""

    plan: EvaluationPlan
    stage: int
    step: int
    version: int
    call: Call
    demonstrations: dict[str, float]  # how likely those are that nothing learns from

    def is_done(self) -> bool:
        return self.call.is_done()


def scheduled(attempt: Attempt, tasks: str) -> EvaluationPlan:
    """How the evaluations of training are played; `tasks`: held_out or quick."""
    plan = attempt.spec.evaluation
    return EvaluationPlan(tasks, plan.trials, plan.temperature, number=_at_most(attempt))


def plan_of(attempt: Attempt, index: int, stage: EvaluateStage) -> EvaluationPlan:
    """Of a stage that judges. Its figures have series of their own where the run also trains:
    other tasks, or another temperature, make no curve with those of training."""
    trains = parent_of(attempt.spec.stages, index) is not None
    asked = stage.question is not None and stage.answer is not None
    return EvaluationPlan(
        stage.tasks,
        stage.trials,
        stage.temperature,
        tuple(stage.hops) if stage.hops else None,
        _at_most(attempt, stage.number),
        "evaluate/" if trains else "eval/",
        stage.position,
        (stage.question or "", stage.answer or "") if asked else None,
    )


def _at_most(attempt: Attempt, number: int | None = None) -> int | None:
    """So many of the tasks are played, None: all. A dry run of a fork has all of its parent's, and
    plays a few of them."""
    return min(number or JUDGED, JUDGED) if attempt.rehearses else number


def start(attempt: Attempt, plan: EvaluationPlan, index: int, step: int) -> Pending:
    """Have the rollout workers play the tasks with the weights that were fetched last."""
    shown = attempt.crew.all_trainers(
        "judge_demonstrations", limit_s=limits.STEP_S, what="demonstrations to be judged"
    )[0]
    version, weights = attempt.version, attempt.weights
    call = attempt.crew.seats.ask(
        "evaluate", lambda part, parts: (plan, part, parts, version, weights)
    )
    return Pending(plan, index, step, version, call, shown)


def finish(
    attempt: Attempt, pending: Pending, tell: Callable[[int], None] | None = None
) -> dict[str, Any] | None:
    """Wait for an evaluation, report it, and keep its outcomes on the run's storage; its summary.

    `tell` is called with the number of trials played so far. None where the end was asked for
    meanwhile.
    """
    plan, told_at = pending.plan, time.monotonic()

    def wants_end() -> bool:
        nonlocal told_at
        if tell is not None and time.monotonic() - told_at >= TOLD_EVERY_S:
            told_at = time.monotonic()
            tell(attempt.crew.seats.played())
        return attempt.control.wants_end

    found = attempt.crew.gather(
        pending.call,
        limits.EVALUATE_S * plan.trials,
        f"the {plan.tasks} tasks to be played",
        until=wants_end,
    )
    if found is None:
        return None
    outcomes = [one for part in found for one in part]
    said = report(outcomes)
    values = metrics(said, plan.prefix)
    values |= {f"{plan.prefix}demonstration_{k}": v for k, v in pending.demonstrations.items()}
    trainer_step = attempt.steps_before(pending.stage) + pending.step
    attempt.reporter.metrics(trainer_step, values)
    summary = {
        "name": plan.tasks,
        "stage": pending.stage,
        "step": pending.step,
        "version": pending.version,
        "trials": plan.trials,
        "temperature": plan.temperature,
        **{key.removeprefix(plan.prefix): value for key, value in values.items()},
    }
    attempt.evaluations.append(summary)
    path = outcomes_file(attempt.number, plan.tasks, pending.stage, pending.step)
    kept = {
        **summary,
        "attempt": attempt.number,
        "outcomes": [one.to_dict() for one in outcomes],
    }
    attempt.storage.write_json(path, kept)
    cut = list(parts(trials(outcomes)))
    for number, rows in enumerate(cut):
        attempt.reporter.spool.add(TrialRows, path=path, part=number, rows=rows)
    attempt.reporter.spool.add(
        EvaluationDone,
        tasks=plan.tasks,
        stage=pending.stage,
        step=pending.step,
        trainer_step=trainer_step,
        version=pending.version,
        trials=plan.trials,
        temperature=plan.temperature,
        path=path,
        parts=len(cut),
        report=said.to_dict(),
        demonstrations=pending.demonstrations,
    )
    return summary


def gain(attempt: Attempt) -> dict[str, float]:
    """Completion on the held-out tasks at the end of the last stage that was judged, minus
    that at the end of the first in its line, over all attempts, and which stages these are;
    empty where there are not two."""
    stages = attempt.spec.stages
    judged = [
        index
        for index, stage in enumerate(stages)
        if isinstance(stage, TrainedStage) and held_out(attempt, index) is not None
    ]
    if not judged:
        return {}
    line = [at for at in reversed(ancestors(stages, judged[-1])) if at in judged]
    before = held_out(attempt, line[0]) if line else None
    after = held_out(attempt, judged[-1])
    if before is None or after is None:
        return {}
    try:
        found = compare(trials(before), trials(after)).gain
    except ValueError:  # something but the policy ended every trial
        return {}
    return {
        "gain": found.value,
        "gain_low": found.lower,
        "gain_high": found.upper,
        "gain_from_stage": line[0],
        "gain_to_stage": judged[-1],
    }


def held_out(attempt: Attempt, index: int) -> list[Outcome] | None:
    """What the held-out tasks came to at the end of a stage, in the newest attempt that judged."""
    steps = attempt.ended_at(index)
    return None if steps is None else kept_outcomes(attempt, "held_out", index, steps)


def kept_outcomes(attempt: Attempt, tasks: str, index: int, step: int) -> list[Outcome] | None:
    """What tasks came to after a step of a stage, in the newest attempt that played them."""
    for number in range(attempt.number, 0, -1):
        path = attempt.storage.fetch(outcomes_file(number, tasks, index, step))
        if path is not None:
            return [Outcome.from_dict(one) for one in json.loads(path.read_text())["outcomes"]]
    return None


def outcomes_file(attempt: int, tasks: str, stage: int, step: int) -> str:
    """An attempt's own: what was reported is never overwritten by one that judges again."""
    return f"evaluations/attempt-{attempt}/stage-{stage}-step-{step:06d}-{tasks}.json"
