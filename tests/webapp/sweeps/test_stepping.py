"""A sweep launches ordinary runs, no trial twice, within its places and budget."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.webapp.support import start
from tests.webapp.sweeps.playing import LR, choice, end, report, run_of, step, sweep_of, train
from webapp.accounts.models import AuditEntry, Membership, Project, Role, User
from webapp.experiments import services as experiments
from webapp.experiments.models import Run, State
from webapp.problems import RefusedError
from webapp.sweeps import services
from webapp.sweeps.models import Sweep, Trial
from webapp.sweeps.services import beginning


def states(trials: list[Trial]) -> list[str]:
    return [trial.state for trial in trials]


def test_a_trial_is_an_ordinary_run_with_its_values(project: Project, owner: User) -> None:
    sweep = sweep_of(project, owner, choice(LR, 0.001, 0.002), priority=-3)
    trials = step(sweep)
    run = run_of(trials[0])
    assert run.spec["stages"][1]["optimizer"]["lr"] == 0.001
    assert (run.name, run.tags, run.priority) == ("lr-1", [sweep.pk], -3)
    assert (run.experiment_id, run.created_by, run.state) == (
        sweep.experiment_id, owner, State.QUEUED,
    )  # fmt: skip
    assert AuditEntry.objects.filter(action="run.launch", target=run.pk).exists()


def test_a_grid_is_gone_through_in_its_places_and_then_it_is_finished(
    project: Project, owner: User
) -> None:
    sweep = sweep_of(project, owner, choice(LR, 0.001, 0.002, 0.003), at_once=2)
    assert states(step(sweep)) == ["active", "active"]
    assert states(step(sweep)) == ["active", "active"]  # nothing has ended
    for trial in sweep.trials.order_by("number"):
        train(trial, 0.5 + trial.number / 10)
    trials = step(sweep)
    assert states(trials) == ["complete", "complete", "active"]
    assert [trial.value for trial in trials] == [0.5, 0.6, None]
    assert sweep.state == "running"
    train(trials[2], 0.4)
    step(sweep)
    assert (sweep.state, sweep.state_reason) == ("finished", "every combination was tried")
    assert sweep.ended_at is not None
    assert Run.objects.count() == 3


def test_it_is_woken_when_a_run_of_it_ends(
    project: Project, owner: User, monkeypatch: Any, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[Any] = []
    sweep = sweep_of(project, owner, choice(LR, 0.001))
    trial = step(sweep)[0]
    start(run_of(trial))
    monkeypatch.setattr(
        "webapp.queue.app.send_task", lambda name, args, **_: sent.append((name, args))
    )
    with django_capture_on_commit_callbacks(execute=True):
        end(run_of(trial))
    assert ("caravan.sweep", (sweep.pk,)) in sent


def test_a_combination_that_the_spec_refuses_is_told_and_counted(
    project: Project, owner: User
) -> None:
    warmup = choice("stages.1.optimizer.warmup_steps", 5, 50, 500)
    sweep = sweep_of(project, owner, warmup, at_once=3)
    trials = step(sweep)
    assert states(trials) == ["active", "active", "refused"]
    assert "500 steps of warm-up do not fit" in trials[2].message
    assert Run.objects.count() == 2


def test_a_search_that_meets_refusals_alone_pauses(project: Project, owner: User) -> None:
    sweep = sweep_of(project, owner, choice("seed", 1, 2), method="random", budget={"trials": 3})
    sweep.base = {**sweep.base, "stages": []}  # as if a newer version refused what was valid
    sweep.save()
    trials = step(sweep)
    assert states(trials) == ["refused"] * beginning.REFUSALS
    assert sweep.state == "paused" and "refused the last 50" in sweep.state_reason


def test_budgets_end_it(project: Project, owner: User) -> None:
    def search(budget: dict[str, float]) -> Sweep:
        return sweep_of(project, owner, choice("seed", 1, 2), method="random", budget=budget)

    by_trials = search({"trials": 2})
    train(step(by_trials)[0], 0.5)
    train(step(by_trials)[1], 0.5)
    step(by_trials)
    assert by_trials.trials.count() == 2
    assert by_trials.state_reason == "all 2 trials of the budget were launched"

    by_steps = search({"steps": 300})
    assert len(step(by_steps)) == 2  # of 120 steps each
    for trial in step(by_steps):
        train(trial, 0.5)
    ours = Run.objects.filter(trial_run__trial__sweep=by_steps)
    ours.update(step=90)  # both were shorter than they might
    assert len(step(by_steps)) == 3
    train(step(by_steps)[2], 0.5)
    ours.update(step=120)
    step(by_steps)
    assert by_steps.state_reason == "the budget of 300 steps has no place for another trial"

    by_hours = search({"hours": 1e-9})
    for trial in step(by_hours):
        train(trial, 0.5)
    step(by_hours)
    assert by_hours.state == "finished" and "worked for" in by_hours.state_reason


def test_a_worker_that_dies_at_any_point_leaves_no_trial_twice(
    project: Project, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write of a step fails once, after which the step is taken again."""
    sweep = sweep_of(project, owner, choice(LR, 0.001, 0.002, 0.003), at_once=3)
    real: Callable[..., Any] = beginning._launch
    deaths = iter([True, False, True, False, False])

    def dies(*arguments: Any, **fields: Any) -> None:
        real(*arguments, **fields)
        if next(deaths):
            raise SystemExit("killed")

    monkeypatch.setattr(beginning, "_launch", dies)
    for _ in range(2):
        with pytest.raises(SystemExit):
            services.step_sweep(sweep.pk)
    trials = step(sweep)
    rates = [run_of(trial).spec["stages"][1]["optimizer"]["lr"] for trial in trials]
    assert rates == [0.001, 0.002, 0.003]
    assert Run.objects.count() == 3


def test_three_failures_in_a_row_pause_it_until_somebody_continues(
    project: Project, owner: User
) -> None:
    sweep = sweep_of(project, owner, choice("seed", *range(9)), at_once=1)
    for _ in range(3):
        train(step(sweep)[-1], state="failed")
    step(sweep)
    assert sweep.state == "paused" and "The last 3 trials failed" in sweep.state_reason
    assert sweep.trials.count() == 3
    services.continue_sweep(sweep.pk, owner)
    assert len(step(sweep)) == 4
    assert sweep.state == "running"


def test_a_run_without_the_metric_fails_its_trial(project: Project, owner: User) -> None:
    sweep = sweep_of(project, owner, choice("seed", 1, 2), at_once=2)
    first, second = step(sweep)
    train(first)
    train(second, float("nan"))
    trials = step(sweep)
    assert states(trials) == ["failed", "failed"]
    assert "no finite eval/completion_rate" in trials[0].message


def test_an_interrupted_run_is_waited_for(project: Project, owner: User) -> None:
    sweep = sweep_of(project, owner, choice("seed", 1))
    trial = step(sweep)[0]
    train(trial, 0.5, state="interrupted")
    assert states(step(sweep)) == ["active"]
    experiments.resume(run_of(trial).pk, None)
    start(run_of(trial))
    report(run_of(trial), 120, 0.7)
    end(run_of(trial))
    trials = step(sweep)
    assert (trials[0].state, trials[0].value) == ("complete", 0.7)


def test_a_deleted_run_ends_its_trial(project: Project, owner: User) -> None:
    sweep = sweep_of(project, owner, choice("seed", 1))
    trial = step(sweep)[0]
    experiments.stop(run_of(trial).pk, owner)
    experiments.archive(run_of(trial).pk, owner)
    experiments.delete_run(run_of(trial).pk, owner)
    trials = step(sweep)
    assert (trials[0].state, trials[0].runs.get().run) == ("failed", None)


def test_people_pause_continue_and_stop_it(project: Project, owner: User, editor: User) -> None:
    sweep = sweep_of(project, owner, choice("seed", *range(5)), at_once=1)
    first = step(sweep)[0]
    services.pause_sweep(sweep.pk, owner)
    train(first, 0.5)
    assert states(step(sweep)) == ["complete"]
    services.continue_sweep(sweep.pk, editor)
    second = step(sweep)[1]
    assert run_of(second).created_by == editor
    services.stop_sweep(sweep.pk, owner)
    trials = step(sweep)
    assert states(trials) == ["complete", "stopped"]
    assert sweep.state == "stopped"
    assert run_of(trials[1]).state == State.STOPPED
    assert "its sweep was stopped" in run_of(trials[1]).state_reason
    for change in (services.pause_sweep, services.continue_sweep, services.stop_sweep):
        with pytest.raises(RefusedError) as refused:
            change(sweep.pk, owner)
        assert refused.value.status == 409
    actions = AuditEntry.objects.filter(target=sweep.pk).order_by("pk")
    assert [one.action.removeprefix("sweep.") for one in actions] == [
        "create", "pause", "continue", "stop",
    ]  # fmt: skip


def test_it_launches_nothing_for_who_may_launch_no_more(project: Project, editor: User) -> None:
    sweep = sweep_of(project, editor, choice("seed", 1))
    Membership.objects.filter(user=editor).update(role=Role.VIEWER)
    assert step(sweep) == []
    assert sweep.state == "paused" and "may not launch" in sweep.state_reason
    editor.delete()
    Sweep.objects.update(state="running")
    assert step(sweep) == []
    assert "is gone" in sweep.state_reason


def test_who_trails_at_a_rung_is_stopped_with_its_rank(project: Project, owner: User) -> None:
    halving = {"min_steps": 10, "factor": 2}
    sweep = sweep_of(project, owner, choice("seed", *range(4)), at_once=4, halving=halving)
    Project.objects.update(max_running=4)
    runs = [start(run_of(trial)).run for trial in step(sweep)]
    for at, (run, value) in enumerate(zip(runs, (0.4, 0.6, 0.5, 0.6), strict=True)):
        report(run, 9, 0.9)  # before the rung: it does not count
        report(run, 12, value, at=100.0 + at)
    trials = step(sweep)
    told = [(r.rank, r.of, r.stays) for t in trials for r in t.rungs.all()]
    assert told == [(1, 1, True), (1, 2, True), (2, 3, False), (1, 4, True)]
    third = run_of(trials[2])
    assert (third.state, third.state_reason) == (
        "stopping", "stopped at rung 1, step 12: rank 2 of 3",
    )  # fmt: skip
    end(third, "stopped")
    third.refresh_from_db()
    assert third.state_reason == "stopped at rung 1, step 12: rank 2 of 3"
    trials = step(sweep)
    assert states(trials) == ["active", "active", "pruned", "active"]
    assert trials[2].value == 0.5
    assert [trial.rungs.count() for trial in step(sweep)] == [1, 1, 1, 1]  # decided once


def test_a_report_past_several_rungs_is_judged_at_each(project: Project, owner: User) -> None:
    halving = {"min_steps": 10, "factor": 3}
    sweep = sweep_of(project, owner, choice("seed", 1, 2), at_once=2, halving=halving)
    first, second = (start(run_of(trial)).run for trial in step(sweep))
    report(first, 95, 0.7)
    report(second, 40, 0.6)
    trials = step(sweep)
    told = [[(one.rank, one.of) for one in trial.rungs.order_by("rung")] for trial in trials]
    assert told == [[(1, 2), (1, 2), (1, 1)], [(1, 1), (1, 1)]]  # the second came there earlier


def test_a_run_that_ends_while_it_is_judged_is_complete(project: Project, owner: User) -> None:
    halving = {"min_steps": 10, "factor": 2}
    sweep = sweep_of(project, owner, choice("seed", 1, 2), at_once=2, halving=halving)
    for trial, value in zip(step(sweep), (0.9, 0.1), strict=True):
        train(trial, value)
    trials = step(sweep)
    assert states(trials) == ["complete", "complete"]
    assert trials[1].rungs.get().stays is False
