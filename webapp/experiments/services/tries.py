"""Trying a checkpoint on one task: an evaluation of that task alone, whose replay is opened."""

import random
from dataclasses import dataclass

from webapp.accounts.models import User
from webapp.experiments.models import Checkpoint, Run
from webapp.experiments.services.evaluations import TAG, Wanted, evaluate_checkpoint
from webapp.experiments.services.launch import numbered
from webapp.experiments.tries import tasks_of

TRY = "try"


@dataclass(frozen=True)
class Tried:
    """A task by its place, or a question with its right answer; with neither, one at random."""

    tasks: str = "held_out"
    position: int | None = None
    question: str | None = None
    answer: str | None = None
    temperature: float = 0.0


def try_checkpoint(checkpoint: Checkpoint, user: User, tried: Tried) -> Run:
    """A run that plays the task with the checkpoint's weights. Raises RefusedError with a field."""
    run, position = checkpoint.run, tried.position
    asks = tried.question is not None or tried.answer is not None
    if position is None and not asks:
        position = random.randrange(_count(run, tried.tasks))
    wanted = Wanted(
        tasks=tried.tasks,
        position=position,
        question=tried.question,
        answer=tried.answer,
        temperature=tried.temperature,
    )
    name = numbered(run.experiment, f"{run.name[:100]}-{TRY}")
    return evaluate_checkpoint(checkpoint, user, wanted, name, tags=[TAG, TRY])


def _count(run: Run, kind: str) -> int:
    """Of the tasks that were made, or of those that were asked for where the files are gone."""
    field = "quick_tasks" if kind == "quick" else "tasks"
    asked = run.spec.get("evaluation", {}).get(field)
    return len(tasks_of(run, kind)) or (asked if isinstance(asked, int) and asked > 0 else 1)
