"""Sweeps whose runs the tests play: what their drivers report, and how they end."""

from typing import Any

from django.db import transaction
from django.utils import timezone

from tests.webapp.support import SPEC, start
from webapp.accounts.models import Project, User
from webapp.experiments import services as experiments
from webapp.experiments.models import Checkpoint, Run, State
from webapp.experiments.states import lock, newest_attempt
from webapp.monitoring.models import Point, Series
from webapp.sweeps import services
from webapp.sweeps.models import Sweep, Trial

METRIC = "eval/completion_rate"
LR = "stages.1.optimizer.lr"


def choice(path: str, *values: Any) -> dict[str, Any]:
    return {"kind": "choice", "path": path, "values": list(values)}


def sweep_of(project: Project, user: User, *space: dict[str, Any], **fields: Any) -> Sweep:
    plan = {"space": list(space), "method": "grid", **fields}
    return services.create_sweep(project, user, SPEC, services.SweepWish(plan, name="lr"))


def report(run: Run, step: int, value: float, at: float | None = None) -> None:
    """A value of the metric, as ingest stores it."""
    series, _ = Series.objects.get_or_create(
        run=run, attempt=newest_attempt(run), name=METRIC, axis="trainer_step"
    )
    Point.objects.create(
        series=series, step=step, at=step if at is None else at, value=value, cursor=1
    )
    series.last_step, series.last_value = step, value
    series.save()


def end(run: Run, state: str = "succeeded", reason: str = "") -> None:
    with transaction.atomic():
        held = lock(run.pk)
        experiments.finish(held, newest_attempt(held), state, reason, {})


def run_of(trial: Trial, at: int = 0) -> Run:
    """The trial's run of its first seed, or of a later one, as it is now."""
    run = trial.runs.order_by("seed")[at].run
    assert run is not None
    return run


def train(trial: Trial, value: float | None = None, state: str = "succeeded", at: int = 0) -> None:
    """A run of the trial starts, reports its metric once, and ends."""
    run = run_of(trial, at)
    if run.state == State.QUEUED:
        start(run)
    if value is not None:
        report(run, 120, value)
    end(run, state)


def stop_with_checkpoint(run: Run) -> None:
    """The run's driver obeys: it saves where it is, and ends."""
    Checkpoint.objects.create(
        run=run,
        attempt=newest_attempt(run),
        stage=1,
        step=1,
        policy_version=1,
        path=f"checkpoints/{run.attempts.count()}",
        files={},
        created_at=timezone.now(),
    )
    end(run, "stopped")


def step(sweep: Sweep) -> list[Trial]:
    """Step it; its trials, and the sweep as it is now."""
    services.step_sweep(sweep.pk)
    sweep.refresh_from_db()
    return list(sweep.trials.order_by("number"))
