"""Evaluations as drivers report them."""

from collections.abc import Sequence
from typing import Any

from engine.evaluation.outcomes import Outcome
from engine.evaluation.report import report
from engine.evaluation.trials import parts, trials
from webapp.experiments.models import Attempt
from webapp.monitoring.models import RunEvent, TrialPart


def items(played: Sequence[Outcome], step: int, **fields: Any) -> list[dict[str, Any]]:
    """What a driver sends: the trials in parts, and the evaluation."""
    path = f"evaluations/attempt-1/stage-1-step-{step:06d}-held_out.json"
    cut = list(parts(trials(played)))
    told = {"source": "driver", "at": float(step)}
    done = {
        "kind": "evaluation", "tasks": "held_out", "stage": 1, "step": step, "trainer_step": step,
        "version": step, "trials": 1, "temperature": 0.0, "report": report(played).to_dict(),
        "path": path, "parts": len(cut), **fields,
    }  # fmt: skip
    rows = [{"kind": "trials", "path": path, "part": n, "rows": of} for n, of in enumerate(cut)]
    return [{**told, "seq": 100 * step + n, **one} for n, one in enumerate([*rows, done], 1)]


def judge(attempt: Attempt, played: Sequence[Outcome], step: int = 1, **fields: Any) -> RunEvent:
    """An evaluation with its trials, as ingest stores them."""
    *told, done = items(played, step, **fields)
    for item in told:
        of_tasks = item["rows"]
        TrialPart.objects.create(
            attempt=attempt,
            path=item["path"],
            part=item["part"],
            tasks=[row["task"] for row in of_tasks],
            categories=[row["category"] for row in of_tasks],
            results=[row["results"] for row in of_tasks],
            trajectories=[pk for row in of_tasks for pk in row["trajectories"]],
        )
    data = {"demonstrations": {}, **done}
    event = {name: data.pop(name) for name in ("kind", "source", "seq", "at")}
    return RunEvent.objects.create(
        run_id=attempt.run_id, attempt=attempt, cursor=1, data=data, **event
    )
