"""A trial with several seeds has a run of each, and their mean counts."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.support import SPEC, Api, start
from tests.webapp.sweeps.playing import (
    LR,
    choice,
    end,
    report,
    run_of,
    step,
    stop_with_checkpoint,
    sweep_of,
    train,
)
from webapp.accounts.models import Project, User
from webapp.experiments.models import Run, State
from webapp.problems import RefusedError
from webapp.sweeps.models import Sweep, Trial
from webapp.sweeps.services import create


@pytest.fixture
def sweep(project: Project, owner: User) -> Sweep:
    Project.objects.update(max_running=9)
    return sweep_of(project, owner, choice(LR, 0.001, 0.002), at_once=1, seeds=3)


def test_each_trial_has_a_run_of_each_seed(sweep: Sweep) -> None:
    (trial,) = step(sweep)
    runs = [one.run for one in trial.runs.order_by("seed") if one.run]
    assert [run.spec["seed"] for run in runs] == [0, 1, 2]
    assert [run.name for run in runs] == [f"lr-1-seed-{n}" for n in range(3)]
    assert {run.spec["stages"][1]["optimizer"]["lr"] for run in runs} == {0.001}
    assert {run.tags[-1] for run in runs} == {sweep.pk}


def test_its_value_is_the_mean_and_its_band_is_students(sweep: Sweep) -> None:
    (trial,) = step(sweep)
    for at, value in enumerate((0.5, 0.7, 0.9)):
        assert step(sweep)[0].state == "active"
        train(trial, value, at=at)
    trial = step(sweep)[0]
    assert trial.state == "complete"
    assert trial.value == pytest.approx(0.7)
    half = 4.302653 * 0.2 / 3**0.5  # of a table of t, two degrees of freedom
    assert trial.band is not None
    assert (trial.band.lower, trial.band.upper) == pytest.approx((0.7 - half, 0.7 + half))
    assert Run.objects.count() == 6  # the second trial has begun


def test_it_reaches_a_rung_once_every_seed_has(project: Project, owner: User) -> None:
    Project.objects.update(max_running=9)
    halving = {"min_steps": 10, "factor": 2}
    sweep = sweep_of(
        project, owner, choice(LR, 0.001, 0.002), at_once=2, seeds=2, halving=halving
    )  # fmt: skip
    first, second = step(sweep)
    runs = [[start(run_of(trial, at)).run for at in (0, 1)] for trial in (first, second)]
    report(runs[0][0], 10, 0.6)
    assert step(sweep)[0].rungs.count() == 0
    report(runs[0][1], 12, 0.4)
    arrival = step(sweep)[0].rungs.get()
    assert (arrival.step, arrival.value, arrival.stays) == (12, 0.5, True)
    report(runs[1][0], 10, 0.8)  # the better one of the two does not save it
    report(runs[1][1], 10, 0.1)
    assert step(sweep)[1].rungs.get().stays is False
    for run in runs[1]:
        run.refresh_from_db()
        assert run.state == State.STOPPING
        stop_with_checkpoint(run)
    trial = step(sweep)[1]
    assert trial.state == "pruned"
    assert trial.value == pytest.approx(0.45)


@pytest.mark.parametrize(
    ("how", "state"), [("failed", "failed"), ("stopped", "stopped"), ("lost", "failed")]
)
def test_where_a_seed_has_no_result_the_others_are_stopped(
    sweep: Sweep, how: str, state: str
) -> None:
    (trial,) = step(sweep)
    train(trial, 0.5, at=0)
    run = start(run_of(trial, 1)).run
    if how == "lost":
        Run.objects.filter(pk=run.pk).update(state="lost")
    else:
        end(run, how, "out of memory")
    trial = step(sweep)[0]
    assert run_of(trial, 2).state == State.STOPPED
    assert "seed 1 of its trial" in run_of(trial, 2).state_reason
    trial = step(sweep)[0]
    assert (trial.state, trial.value) == (state, None)
    assert trial.message.startswith("seed 1: ")


def test_budgets_count_the_steps_of_all_seeds(project: Project, owner: User) -> None:
    plan = {"space": [choice(LR, 1, 2)], "method": "grid", "seeds": 3, "budget": {"steps": 800}}
    seen = create.preview(SPEC, plan)
    assert (seen.steps, seen.trials, seen.most_steps) == ((360, 360), 2, 720)
    with pytest.raises(RefusedError) as refused:
        create.preview(SPEC, {**plan, "budget": {"steps": 359}})
    assert [one.path for one in refused.value.errors] == ["budget.steps"]
    sweep = sweep_of(
        project, owner, choice(LR, 0.1, 0.2), at_once=2, seeds=3, budget={"steps": 700}
    )
    assert len(step(sweep)) == 1


@pytest.mark.parametrize("change", [{"space": [choice("seed", 1, 2)]}, {"seeds": 0}, {"seeds": 21}])
def test_seeds_that_cannot_be_are_named(change: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as refused:
        create.preview(SPEC, {"space": [choice(LR, 1)], "method": "grid", "seeds": 2, **change})
    assert [one.path for one in refused.value.errors] == ["seeds"]


def test_a_seed_beyond_the_last_one_is_refused_by_the_spec(project: Project, owner: User) -> None:
    base = {**SPEC, "seed": 2**31 - 2}
    with pytest.raises(RefusedError) as refused:
        create.preview(base, {"space": [choice(LR, 1)], "method": "grid", "seeds": 3})
    assert "seed" in [one.path for one in refused.value.errors]


def test_the_page_and_the_api_show_mean_band_and_seeds(
    page: Client, api: Api, sweep: Sweep
) -> None:
    for trial in (step(sweep)[0], step(sweep)[0]):
        for at, value in enumerate((0.5, 0.7, 0.9)):
            if run_of(trial, at).ended_at is None:
                train(trial, value, at=at)
    second: Trial = step(sweep)[1]
    for at in range(3):
        train(second, 0.5 + at / 100, at=at)
    step(sweep)
    text = page.get(reverse("sweep", args=[sweep.pk])).content.decode()
    assert "± 0.50" in text and ">seed 2</a>" in text
    assert text.count("sweep-band") == 4  # two trials in two pictures
    found = api("GET", f"sweeps/{sweep.pk}").json()["best_trial"]
    assert [one["value"] for one in found["runs"]] == [0.5, 0.7, 0.9]
    assert found["band"] == pytest.approx([0.7 - 0.4968, 0.7 + 0.4968], abs=1e-3)
