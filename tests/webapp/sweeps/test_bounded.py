"""A step of a sweep asks for as many rows with 300 trials behind it as with 10."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection

from tests.webapp.support import start
from tests.webapp.sweeps.playing import (
    LR,
    choice,
    report,
    run_of,
    step,
    stop_with_checkpoint,
    sweep_of,
)
from webapp.accounts.models import Project, User
from webapp.experiments.models import Run
from webapp.sweeps.models import Arrival, Sweep, Trial, TrialRun


@dataclass
class Asked:
    queries: int = 0
    rows: int = 0


@contextmanager
def counting() -> Iterator[Asked]:
    """Queries and the rows that came back of them."""
    asked = Asked()

    def run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        asked.queries += 1
        if sql.lstrip().upper().startswith(("SELECT", "WITH")):
            asked.rows += max(context["cursor"].rowcount, 0)
        return result

    with connection.execute_wrapper(run):
        yield asked


def sweep_with(project: Project, owner: User, past: int) -> Sweep:
    """So many trials behind it that stopped at the first rung; one at work that has reached it."""
    space = choice(LR, *(0.001 * n for n in range(1, 100))), choice("seed", *range(9))
    sweep = sweep_of(project, owner, *space, at_once=1, halving={"min_steps": 10, "factor": 2})
    (first,) = step(sweep)
    report(start(run_of(first)).run, 10, 0.9)
    step(sweep)
    stop_with_checkpoint(run_of(first))
    Arrival.objects.filter(sweep=sweep).update(stays=False)
    Trial.objects.filter(pk=first.pk).update(state="pruned", value=0.9)
    run = Run.objects.get(pk=run_of(first).pk)
    for number in range(1, past):
        run.pk, run.name, run.number = f"run_{past}_{number}", f"past {number}", 10_000 + number
        fields = {f.attname: getattr(run, f.attname) for f in Run._meta.concrete_fields
                  if not f.generated}  # fmt: skip
        copy = Run.objects.create(**fields)
        trial = Trial.objects.create(
            sweep=sweep, number=number, params=first.params, state="pruned", value=0.1
        )
        TrialRun.objects.create(trial=trial, run=copy, seed=0, value=0.1)
        Arrival.objects.create(
            sweep=sweep, trial=trial, rung=0, step=10, value=0.1, rank=2, of=2, stays=False
        )
    return sweep


def test_beginning_and_judging_take_no_more_for_more_trials(project: Project, owner: User) -> None:
    Project.objects.update(max_running=9)
    found = []
    for past in (10, 300):
        sweep = sweep_with(project, owner, past)
        with counting() as promoting:
            step_only(sweep)  # the first is among the best, and is promoted
        promoted = Trial.objects.get(sweep=sweep, number=0)
        assert promoted.state == "active"
        Arrival.objects.filter(sweep=sweep).update(stays=True)  # nobody else is
        report(start(run_of(promoted)).run, 20, 0.95)
        with counting() as judging:
            step_only(sweep)
        assert promoted.rungs.count() == 2
        Trial.objects.filter(pk=promoted.pk).update(state="complete")
        with counting() as beginning:
            step_only(sweep)
        assert sweep.trials.count() == past + 1
        found.append((promoting, judging, beginning))
    few, many = found
    assert many == few
    assert sum(one.rows for one in many) < 300  # of which a launch takes most


def step_only(sweep: Sweep) -> None:
    from webapp.sweeps import services

    services.step_sweep(sweep.pk)
