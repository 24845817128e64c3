"""Optuna's memory lies beside Django's tables, and an answer that was lost is given again."""

import math
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from tests.webapp.support import SPEC, start
from tests.webapp.sweeps.playing import LR, end, report, run_of, step, sweep_of, train
from webapp.accounts.models import Project, User
from webapp.experiments.models import Run
from webapp.sweeps import tpe
from webapp.sweeps.models import Sweep
from webapp.sweeps.plan import SweepPlan
from webapp.sweeps.services import create
from webapp.sweeps.space import Outcome

RATE = {"kind": "loguniform", "path": LR, "low": 1e-5, "high": 1e-1}
MODEL = {"kind": "choice", "path": "model.layers", "values": [["lightning"], ["softmax"]]}


def tables(schema: str) -> list[str]:
    with connection.cursor() as sql:
        sql.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
        return sorted(name for (name,) in sql.fetchall())


def tpe_sweep(project: Project, user: User, **fields: Any) -> Sweep:
    given = {"method": "tpe", "budget": {"trials": 40}, "at_once": 1, **fields}
    return sweep_of(project, user, RATE, MODEL, **given)


def test_its_tables_lie_in_a_schema_of_their_own(project: Project, owner: User) -> None:
    before = tables("public")
    step(tpe_sweep(project, owner))
    assert "trials" in tables("optuna")
    assert tables("public") == before


def test_values_of_any_kind_reach_the_spec(project: Project, owner: User) -> None:
    sweep = tpe_sweep(project, owner, at_once=4)
    trials = step(sweep)
    assert len(trials) == 4
    for trial in trials:
        assert run_of(trial).spec["model"]["layers"] == trial.params["model.layers"]
        assert 1e-5 <= run_of(trial).spec["stages"][1]["optimizer"]["lr"] <= 1e-1
    assert len({trial.params[LR] for trial in trials}) == 4
    assert [trial.asked for trial in trials] == [0, 1, 2, 3]


def test_it_learns_where_the_best_values_lie(project: Project, owner: User) -> None:
    """The later half of its questions lies nearer to the optimum than chance would."""
    sweep = sweep_of(project, owner, RATE, method="tpe", budget={"trials": 30})
    plan = SweepPlan.model_validate(sweep.plan)
    found: list[float] = []
    for _ in range(30):
        number, params = tpe.ask(sweep.pk, plan, known=set)
        distance = abs(math.log10(params[LR]) + 3)  # drawn at random: 1 on average
        found.append(distance)
        tpe.tell(sweep.pk, plan, number, Outcome("complete", -distance, {}))
    assert sum(found[15:]) / 15 < 0.7


def test_what_was_asked_and_never_launched_is_launched_after_the_crash(
    project: Project, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = tpe_sweep(project, owner)
    asked: list[Any] = []
    real = tpe.ask

    def dies(*arguments: Any) -> Any:
        asked.append(real(*arguments))
        raise SystemExit("killed between the question and the launch")

    monkeypatch.setattr(tpe, "ask", dies)
    for _ in range(2):
        with pytest.raises(SystemExit):
            step(sweep)
    monkeypatch.setattr(tpe, "ask", real)
    trials = step(sweep)
    assert len(trials) == Run.objects.count() == 1
    assert asked[0] == asked[1] == (trials[0].asked, trials[0].params)


def test_a_crash_in_the_middle_of_a_question_makes_no_values_twice(
    project: Project, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial was made in the study, and killed before its values were drawn."""
    sweep = tpe_sweep(project, owner, at_once=5)
    with monkeypatch.context() as patched:
        patched.setattr(tpe, "_suggested", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            step(sweep)
    trials = step(sweep)
    assert [trial.asked for trial in trials] == [0, 1, 2, 3, 4]
    assert len({trial.params[LR] for trial in trials}) == 5


def test_an_answer_is_told_once_however_often_it_is_sent(
    project: Project, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = tpe_sweep(project, owner, at_once=2)
    for trial in step(sweep):
        train(trial, 0.5 if trial.number else None)
    real = tpe.tell

    def dies(*arguments: Any) -> None:
        real(*arguments)
        raise SystemExit("killed after Optuna was told, before we noted it")

    monkeypatch.setattr(tpe, "tell", dies)
    with pytest.raises(SystemExit):
        step(sweep)
    monkeypatch.setattr(tpe, "tell", real)
    trials = step(sweep)
    assert [trial.told for trial in trials] == [True, True, False, False]
    plan = SweepPlan.model_validate(sweep.plan)
    kept = tpe._study(sweep.pk, plan).get_trials()
    assert [(one.state.name, one.value) for one in kept[:2]] == [("FAIL", None), ("COMPLETE", 0.5)]


def test_a_pruned_trial_leaves_its_rungs(project: Project, owner: User) -> None:
    sweep = tpe_sweep(project, owner, at_once=2, halving={"min_steps": 10, "factor": 2})
    runs = [start(run_of(trial)).run for trial in step(sweep)]
    report(runs[0], 10, 0.9)
    report(runs[1], 11, 0.1)
    step(sweep)
    end(runs[1], "stopped")
    step(sweep)
    plan = SweepPlan.model_validate(sweep.plan)
    kept = tpe._study(sweep.pk, plan).get_trials()[1]
    assert (kept.state.name, kept.intermediate_values) == ("PRUNED", {11: 0.1})


def test_what_a_promoted_trial_came_to_is_told_beside_what_was_told_before(
    project: Project, owner: User
) -> None:
    sweep = tpe_sweep(project, owner, at_once=2)
    plan = SweepPlan.model_validate(sweep.plan)
    number, params = tpe.ask(sweep.pk, plan, known=set)
    for _ in range(2):  # however often each is sent
        tpe.tell(sweep.pk, plan, number, Outcome("pruned", None, {10: 0.1}))
    for _ in range(2):
        tpe.tell(sweep.pk, plan, number, Outcome("pruned", None, {10: 0.1, 20: 0.4}))
    for _ in range(2):
        tpe.tell(sweep.pk, plan, number, Outcome("complete", 0.9, {10: 0.1, 20: 0.4}))
    kept = tpe._study(sweep.pk, plan).get_trials()
    assert [(one.state.name, len(one.intermediate_values)) for one in kept] == [
        ("PRUNED", 1), ("PRUNED", 2), ("COMPLETE", 2),
    ]  # fmt: skip
    assert kept[2].value == 0.9
    assert {one.params[LR] for one in kept} == {params[LR]}
    following, _ = tpe.ask(sweep.pk, plan, known=set)
    assert following == 3


def test_a_memory_that_cannot_be_reached_is_told_and_asked_again(
    project: Project, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = tpe_sweep(project, owner)

    def refuses(*arguments: Any) -> Any:
        raise psycopg.OperationalError("permission denied for database\nhint: ask for it")

    with monkeypatch.context() as patched:
        patched.setattr(tpe, "_study", refuses)
        assert step(sweep) == []
        said = "TPE cannot be asked, it is tried again: permission denied for database"
        assert (sweep.state, sweep.state_reason) == ("running", said)
    assert len(step(sweep)) == 1
    assert (sweep.state, sweep.state_reason) == ("running", "")


@pytest.mark.django_db(transaction=True)
def test_flush_and_migrations_leave_it_alone(project: Project, owner: User) -> None:
    sweep = tpe_sweep(project, owner)
    step(sweep)
    plan = SweepPlan.model_validate(sweep.plan)
    call_command("migrate", verbosity=0)
    call_command("flush", interactive=False, verbosity=0)
    assert not Sweep.objects.exists()
    assert len(tpe._study(sweep.pk, plan).get_trials()) == 1
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_the_web_tier_starts_without_optuna() -> None:
    code = (
        "import sys, webapp.asgi, webapp.urls, webapp.api\n"
        "print([name for name in ('optuna', 'sqlalchemy', 'alembic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_a_preview_asks_optuna_nothing() -> None:
    plan = {"method": "tpe", "space": [RATE], "budget": {"trials": 3}}
    assert create.preview(SPEC, plan).trials == 3
