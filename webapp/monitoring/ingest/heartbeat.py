"""A heartbeat: the run's progress comes in, what people wish of the run goes out."""

from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from webapp.experiments.models import Run, State
from webapp.experiments.states import move
from webapp.monitoring.ingest.storing import locked_by_token


@dataclass(frozen=True)
class Answer:
    command: str  # run | stop | interrupt
    pause_rollouts: bool
    pause_training: bool
    run: Run
    changed: bool  # whether live pages have something new to show


@transaction.atomic
def heartbeat(token: str, phase: str, stage: int, step: int) -> Answer:
    """Raises RefusedError: 401 for an unknown token, 409 for a revoked one."""
    run, attempt = locked_by_token(token)
    attempt.heartbeat_at = timezone.now()
    attempt.save(update_fields=["heartbeat_at"])
    done = steps_before(run, stage) + step
    changed = (run.phase, run.stage, run.step) != (phase, stage, done)
    run.phase, run.stage, run.step = phase, stage, done
    if attempt.state in (State.STARTING, State.UNREACHABLE):
        move(run, attempt, State.RUNNING)
    elif changed:
        run.cursor += 1
        run.save(update_fields=["phase", "stage", "step", "cursor"])
    command = "stop" if run.state == State.STOPPING else run.wish
    return Answer(command, run.pause_rollouts, run.pause_training, run, changed)


def steps_before(run: Run, stage: int) -> int:
    """Steps of all stages before one: a run's `step` counts through its whole spec."""
    return sum(part.get("steps", 0) for part in run.spec.get("stages", [])[:stage])
