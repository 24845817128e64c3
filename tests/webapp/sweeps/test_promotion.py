"""Who stopped at a rung goes on once it is among the best, as the paper's Algorithm 2 says."""

import math
import random
from dataclasses import dataclass, field

import pytest
from django.utils import timezone

from tests.webapp.support import start
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
from webapp.experiments import services as experiments
from webapp.experiments.models import Checkpoint, Run, State
from webapp.sweeps.halving import rung_step
from webapp.sweeps.models import Arrival, Sweep, Trial, TrialState
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.rungs import promotable

LAST = 120  # steps of a run


@dataclass
class Paper:
    """Algorithm 2 of Li et al. 2020, with the best of fewer than eta promoted too."""

    factor: int
    most: int  # trials
    rungs: list[list[tuple[int, float]]] = field(default_factory=list)
    promoted: set[tuple[int, int]] = field(default_factory=set)  # (trial, rung)
    begun: int = 0

    def top(self, rung: int) -> list[int]:
        k = max(math.floor(len(self.rungs[rung]) / self.factor), 1)
        best_first = sorted(self.rungs[rung], key=lambda one: -one[1])  # stable: ties by age
        return [trial for trial, _ in best_first[:k]]

    def get_job(self) -> int | None:
        for rung in reversed(range(len(self.rungs))):
            for trial in self.top(rung):
                if (trial, rung) not in self.promoted:
                    self.promoted.add((trial, rung))
                    return trial
        if self.begun == self.most:
            return None
        self.begun += 1
        return self.begun - 1

    def finished(self, trial: int, rung: int, value: float) -> bool:
        """A trial has come to a rung; whether it goes on where it is, as it is among the best."""
        if rung == len(self.rungs):
            self.rungs.append([])
        self.rungs[rung].append((trial, value))
        if trial in self.top(rung):
            self.promoted.add((trial, rung))
        return trial in self.top(rung)


@pytest.mark.parametrize("seed", range(3))
def test_a_history_is_that_of_the_paper(project: Project, owner: User, seed: int) -> None:
    """Two or three places, trials whose order changes from rung to rung, reports at random."""
    source = random.Random(seed)
    places, factor = 2 + seed % 2, 2 + seed % 2
    Project.objects.update(max_running=places)
    halving = {"min_steps": 10, "factor": factor}
    paper = Paper(factor, most=9)
    sweep = sweep_of(
        project, owner, choice("seed", *range(9)), at_once=places, halving=halving
    )  # fmt: skip
    expected = {paper.get_job() for _ in range(places)}
    while True:
        trials = step(sweep)
        active = [one for one in trials if one.state == TrialState.ACTIVE]
        assert {one.number for one in active} == expected
        gone_on = Arrival.objects.filter(sweep=sweep, stays=True)
        assert set(gone_on.values_list("trial__number", "rung")) == paper.promoted
        if not active:
            break
        trial = source.choice(active)
        run = run_of(trial)
        if run.state == State.QUEUED:
            start(run)
        rung = trial.rungs.count()
        at = rung_step(rung, 10, factor)
        expected.discard(trial.number)
        if at > LAST:
            end(run)
            goes_on = False
        else:
            value = source.random() * 0.8**trial.number  # later ones are worse: some are promoted
            report(run, at, value, at=timezone.now().timestamp())
            goes_on = paper.finished(trial.number, rung, value)
            step(sweep)
            run.refresh_from_db()
            assert (run.state == State.STOPPING) == (not goes_on)
            if not goes_on:
                stop_with_checkpoint(run)
        following = trial.number if goes_on else paper.get_job()
        expected |= {following} - {None}
    assert sweep.state == "finished"
    assert any(one.was_promoted for one in sweep.trials.all())


@pytest.mark.parametrize("seed", range(20))
def test_the_next_promotion_is_that_of_the_paper(project: Project, owner: User, seed: int) -> None:
    """Rungs as a random history left them, with equal values and such as are no numbers."""
    source = random.Random(seed)
    maximise, factor = seed % 2 == 0, source.randint(2, 4)
    direction = "maximise" if maximise else "minimise"
    halving = {"min_steps": 1, "factor": factor}
    sweep = sweep_of(
        project, owner, choice("seed", *range(50)), direction=direction, halving=halving
    )
    paper = Paper(factor, most=0)
    here = list(range(source.randint(1, 25)))
    trials = [
        Trial.objects.create(sweep=sweep, number=n, params={}, state=TrialState.PRUNED)
        for n in here
    ]
    for rung in range(3):
        paper.rungs.append([])
        for trial in here:
            value = float(source.choice([0, 1, 2, 3, 4, math.nan, math.inf]))
            stays = math.isfinite(value) and source.random() < 0.3
            Arrival.objects.create(
                sweep=sweep, trial=trials[trial], rung=rung, step=1, value=value, rank=1, of=1,
                stays=stays,
            )  # fmt: skip
            worst = -math.inf
            sign = 1 if maximise else -1
            paper.rungs[rung].append((trial, sign * value if math.isfinite(value) else worst))
            if stays:
                paper.promoted.add((trial, rung))
        here = [trial for trial in here if (trial, rung) in paper.promoted]
        if not here:
            break
    for rung, brought in enumerate(paper.rungs):  # what is no number is promoted by nobody
        paper.promoted |= {(trial, rung) for trial, value in brought if not math.isfinite(value)}
    before = set(paper.promoted)
    wanted = paper.get_job()
    found = promotable(sweep, SweepPlan.model_validate(sweep.plan))
    if wanted is None:
        assert found is None
    else:
        assert found is not None
        assert {(wanted, found[0].rung)} == paper.promoted - before
        assert found[0].trial.number == wanted


def rivals(project: Project, owner: User, **fields: object) -> tuple[Sweep, list[Trial]]:
    """Two trials at work of which the second was stopped at the first rung; a third has begun."""
    given = {"at_once": 2, "halving": {"min_steps": 10, "factor": 2}, **fields}
    sweep = sweep_of(project, owner, choice(LR, *(0.001 * n for n in range(1, 9))), **given)
    Project.objects.update(max_running=8)
    trials = step(sweep)
    for trial, value in zip(trials, (0.6, 0.5), strict=True):
        report(start(run_of(trial)).run, 10, value)
    step(sweep)
    stop_with_checkpoint(run_of(trials[1]))
    return sweep, step(sweep)


def bring_two_that_are_worse(sweep: Sweep) -> None:
    for at in (2, 3):
        trial = step(sweep)[at]
        report(start(run_of(trial)).run, 10, 0.1)
        step(sweep)
        if at == 2:
            stop_with_checkpoint(run_of(trial))
    stop_with_checkpoint(run_of(step(sweep)[3]))


def test_it_resumes_the_run_from_its_checkpoint(project: Project, owner: User) -> None:
    sweep, trials = rivals(project, owner)
    run = run_of(trials[1])
    assert (trials[1].state, run.state) == ("pruned", "stopped")
    bring_two_that_are_worse(sweep)
    trials = step(sweep)
    run.refresh_from_db()
    attempt = run.attempts.order_by("-number")[0]
    assert (run.state, attempt.number) == (State.QUEUED, 2)
    assert attempt.resume_from == Checkpoint.objects.get(run=run)
    assert (trials[1].state, trials[1].message) == (
        "active", "promoted at rung 1: rank 2 of 4 by then",
    )  # fmt: skip
    assert trials[1].was_promoted and trials[1].rungs.get().rank == 2
    train(trials[1], 0.9)
    trials = step(sweep)
    assert (trials[1].state, trials[1].value) == ("complete", 0.9)


@pytest.mark.parametrize("lost", ["deleted", "archived", "without checkpoint", "resumed by hand"])
def test_what_cannot_be_resumed_is_passed_over(project: Project, owner: User, lost: str) -> None:
    sweep, trials = rivals(project, owner)
    run = run_of(trials[1])
    if lost == "archived":
        experiments.archive(run.pk, owner)
    elif lost == "deleted":
        experiments.archive(run.pk, owner)
        experiments.delete_run(run.pk, owner)
    elif lost == "resumed by hand":
        experiments.resume(run.pk, owner)
    else:
        run.checkpoints.update(removed_at=timezone.now())
    bring_two_that_are_worse(sweep)
    trials = step(sweep)
    assert [one.state for one in trials] == ["active", "pruned", "pruned", "pruned", "active"]
    assert not Arrival.objects.exclude(promoted_at=None).exists()


def test_no_promotion_goes_beyond_the_budget(project: Project, owner: User) -> None:
    sweep, trials = rivals(project, owner)
    bring_two_that_are_worse(sweep)
    Run.objects.exclude(ended_at=None).update(step=10)
    sweep.refresh_from_db()
    # 120 of the first, 10 of each that was stopped: promoting one takes 110 more.
    sweep.plan = {**sweep.plan, "budget": {"steps": 120 + 3 * 10 + 109}}
    sweep.save()
    assert [one.state for one in step(sweep)] == ["active", "pruned", "pruned", "pruned"]
    sweep.plan = {**sweep.plan, "budget": {"steps": 120 + 3 * 10 + 110}}
    sweep.save()
    assert step(sweep)[1].state == "active"
    assert sweep.state == "running"


def test_a_sweep_that_is_paused_or_stopped_promotes_nobody(project: Project, owner: User) -> None:
    sweep, trials = rivals(project, owner)
    bring_two_that_are_worse(sweep)
    for state in ("paused", "stopped"):
        Sweep.objects.update(state=state)
        assert step(sweep)[1].state == "pruned"
