"""Two made-up sweeps: one that has ended, and one that somebody paused on the way.

What their runs report is made up; who is tried, stopped and promoted is what the sweep's own
service, TPE and ASHA decide on that. All of it is one transaction: no worker sees a run that waits.
"""

import math
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from engine.spec import ExperimentSpec
from webapp.accounts.models import Project, User
from webapp.experiments.models import Run, State
from webapp.monitoring.ingest.heartbeat import heartbeat
from webapp.monitoring.seed import curves, driver
from webapp.sweeps import services
from webapp.sweeps.halving import rung_step
from webapp.sweeps.models import Sweep, TrialState

LR, GROUP = "stages.2.optimizer.lr", "stages.2.group_size"
SFT_STEPS, RL_STEPS, EVERY = 60, 240, 10
LAST = SFT_STEPS + RL_STEPS
MIN_STEPS, FACTOR = 90, 2
STEP_S = 2.0
BEST_LR = 4e-4

Plan = dict[str, Any]
SPACE = [
    {"kind": "loguniform", "path": LR, "low": 2e-5, "high": 5e-3},
    {"kind": "choice", "path": GROUP, "values": [4, 8]},
]
ENDED: Plan = {
    "method": "tpe",
    "space": SPACE,
    "budget": {"trials": 10},
    "at_once": 4,
    "halving": {"min_steps": MIN_STEPS, "factor": FACTOR},
}
PAUSED: Plan = {
    "method": "random",
    "space": SPACE,
    "budget": {"trials": 10},
    "at_once": 2,
    "seeds": 3,
}
PAUSED_AFTER = 4  # trials


def make(project: Project, user: User, spec: ExperimentSpec, days: float) -> None:
    """Both sweeps, begun so many days ago and some time later."""
    base = spec.model_dump(mode="json")
    base["tags"] = ["demo"]
    base["stages"][1]["steps"], base["stages"][2]["steps"] = SFT_STEPS, RL_STEPS
    began = time.time() - days * 86_400
    _play(project, user, base, "learning rate and group", ENDED, began)
    paused = "learning rate over seeds"
    _play(project, user, base, paused, PAUSED, began + 40_000, PAUSED_AFTER)


@transaction.atomic
def _play(
    project: Project,
    user: User,
    base: dict[str, Any],
    name: str,
    plan: Plan,
    began: float,
    pause_after: int | None = None,
) -> None:
    limit = Project.objects.select_for_update(no_key=True).get(pk=project.pk).max_running
    Project.objects.filter(pk=project.pk).update(max_running=1000)
    wish = services.SweepWish(plan, name=name, experiment="learning-rate")
    sweep = services.create_sweep(project, user, base, wish)
    source = random.Random(name)
    drivers: dict[str, driver.Driver] = {}
    clock = began
    while True:
        services.step_sweep(sweep.pk)
        sweep.refresh_from_db()
        if sweep.state == "running" and sweep.trials.count() >= (pause_after or math.inf):
            services.pause_sweep(sweep.pk, user)
        at_work = list(
            Run.objects.filter(
                trial_run__trial__sweep=sweep, trial_run__trial__state=TrialState.ACTIVE
            ).order_by("number")
        )
        if not at_work:
            break
        for run in at_work:
            if run.state == State.QUEUED:
                drivers[run.pk] = driver.take(run, _course(run, source), clock)
            _advance(drivers[run.pk], run)
        clock = max(one.at for one in drivers.values())
    for one in drivers.values():
        one.run.refresh_from_db()
        driver.backdate(one, one.at - one.run.step * STEP_S, one.at)
    _backdate(sweep, began, clock)
    Project.objects.filter(pk=project.pk).update(max_running=limit)


def _course(run: Run, source: random.Random) -> curves.Course:
    """Best near one learning rate; a larger group learns steadier and ends a little higher."""
    stage = run.spec["stages"][2]
    distance = abs(math.log10(stage["optimizer"]["lr"] / BEST_LR))
    end = 0.9 - 0.22 * distance + (0.03 if stage["group_size"] == 8 else 0.0)
    end += source.gauss(0, 0.02)
    pace = 45 * (1 + distance) * source.uniform(0.8, 1.2)
    return curves.Course(random.Random(run.pk), source.uniform(0.3, 0.4), max(end, 0.4), pace)


def _advance(played: driver.Driver, run: Run) -> None:
    """To its next rung, or its end; where it is asked to stop, it saves and ends."""
    if run.state == State.STOPPING:
        driver.checkpoint(played, 2, run.step, run.step)
        played.send()
        driver.end(played, "stopped")
        return
    rungs = (rung_step(rung, MIN_STEPS, FACTOR) for rung in range(9))
    until = min(next(step for step in rungs if step > run.step), LAST)
    for step in range(run.step + EVERY, until + 1, EVERY):
        played.at += EVERY * STEP_S
        trained = max(step - SFT_STEPS, 0)
        rate = {"eval/completion_rate": played.course.completion(trained)}
        learned = curves.rl_metrics(played.course, trained) if trained else {}
        played.metrics("trainer-0", "trainer_step", step, learned | rate)
    played.send()
    at_stage = (1, until) if until <= SFT_STEPS else (2, until - SFT_STEPS)
    heartbeat(played.token, "rl", *at_stage)
    if until == LAST:
        driver.checkpoint(played, 2, until, until, final=True)
        played.send()
        driver.end(played, "succeeded")


def _backdate(sweep: Sweep, began: float, ended: float) -> None:
    start = datetime.fromtimestamp(began, UTC)
    stop = datetime.fromtimestamp(ended, UTC) if sweep.ended_at else None
    Sweep.objects.filter(pk=sweep.pk).update(created_at=start, ended_at=stop)
    promoted = start + timedelta(seconds=(ended - began) / 2)
    sweep.arrivals.exclude(promoted_at=None).update(promoted_at=promoted)
