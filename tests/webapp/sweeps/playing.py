"""Sweeps whose runs the tests play: what their drivers report, and how they end."""

from typing import Any

from django.db import transaction

from tests.webapp.support import SPEC, start
from webapp.accounts.models import Project, User
from webapp.experiments import services as experiments
from webapp.experiments.models import Run, State
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


def train(trial: Trial, value: float | None = None, state: str = "succeeded") -> None:
    """The trial's run starts, reports its metric once, and ends."""
    assert trial.run is not None
    if trial.run.state == State.QUEUED:
        start(trial.run)
    if value is not None:
        report(trial.run, 120, value)
    end(trial.run, state)


def step(sweep: Sweep) -> list[Trial]:
    """Step it; its trials, and the sweep as it is now."""
    services.step_sweep(sweep.pk)
    sweep.refresh_from_db()
    return list(sweep.trials.order_by("number").select_related("run"))
