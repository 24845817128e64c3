"""Launch freezes what was asked for, and says what is wrong before anything starts."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command

from tests.webapp.support import SPEC, Api, Driver
from webapp.accounts.models import Project, User
from webapp.experiments import recipes, services
from webapp.experiments.models import Run
from webapp.problems import RefusedError

Launcher = Callable[..., Run]


def test_what_was_launched_is_frozen(run: Run, owner: User) -> None:
    spec = services.check_spec(SPEC)
    assert run.spec == spec.model_dump(mode="json")
    assert run.reward_scheme is not None
    assert run.reward_scheme.definition == spec.reward.model_dump(mode="json")
    assert run.code_version
    assert run.steps == 120
    services.edit_run(run.pk, owner, notes="new")
    assert Run.objects.get().spec == run.spec


def test_runs_of_one_question_share_experiment_and_scheme(launch: Launcher) -> None:
    first, second = launch(), launch()
    assert first.experiment == second.experiment
    assert first.reward_scheme == second.reward_scheme
    assert first.name != second.name
    third = launch(reward={"terms": [{"kind": "exact_answer", "weight": 2.0}]})
    assert third.reward_scheme is not None and first.reward_scheme is not None
    assert third.reward_scheme.scheme == first.reward_scheme.scheme
    assert third.reward_scheme.number == 2


def test_an_experiment_is_found_whatever_its_case(
    project: Project, owner: User, launch: Launcher
) -> None:
    run = launch()
    spec = services.check_spec(SPEC)
    again = services.launch_run(project, owner, spec, services.Launch(experiment="TRY"))
    assert again.experiment == run.experiment


def test_the_quick_start_is_launched_once(db: None, capsys: Any) -> None:
    call_command("ensure_admin")
    capsys.readouterr()
    call_command("launch_demo")
    run = Run.objects.get()
    assert capsys.readouterr().out.strip() == run.pk
    assert run.is_demo
    call_command("launch_demo")
    assert capsys.readouterr().out == ""
    assert Run.objects.count() == 1


def test_going_down_without_a_driver_interrupts_after_the_wait(driver: Driver, capsys: Any) -> None:
    call_command("interrupt_runs", "--wait", "0")
    assert capsys.readouterr().out.strip() == f"{driver.run.pk} interrupted"
    call_command("resume_interrupted")
    assert capsys.readouterr().out.strip() == driver.run.pk


def test_recipes_can_be_launched_with_changes(api: Api) -> None:
    for recipe in api("GET", "recipes").json():
        services.check_spec(recipe["text"])
    overrides = {"seed": 7, "stages.1.steps": 60, "rollout.workers": 2}
    answer = api("POST", "runs", {"recipe": "kg-search", "overrides": overrides})
    assert answer.status_code == 201, answer.content
    spec = answer.json()["spec"]
    assert (spec["seed"], spec["stages"][1]["steps"], spec["rollout"]["workers"]) == (7, 60, 2)


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"stages.9.steps": 1}, "stages.9.steps"),
        ({"stages.x.steps": 1}, "stages.x.steps"),
        ({"name.x": 1}, "name.x"),
        ({"rollout.worker": 1}, "rollout.worker"),
    ],
)
def test_a_change_of_nothing_is_refused(api: Api, overrides: dict[str, Any], path: str) -> None:
    answer = api("POST", "runs", {"recipe": "kg-search", "overrides": overrides})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == path


def test_an_unknown_recipe_names_those_there_are(db: None) -> None:
    with pytest.raises(RefusedError, match="kg-search"):
        recipes.recipe("../settings")


def test_validation_tells_without_launching(api: Api) -> None:
    good = api("POST", "specs/validate", {"spec": SPEC}).json()
    assert good["valid"] and good["spec"]["seed"] == 0
    bad = api("POST", "specs/validate", {"text": "name: [1"}).json()
    assert not bad["valid"] and bad["problems"]
    assert bad["plan"] is None and bad["advice"] is None
    assert not Run.objects.exists()


def test_validation_plans_the_run_for_the_devices_that_are_named(api: Api) -> None:
    own = api("POST", "specs/validate", {"spec": SPEC}).json()
    assert own["plan"]["memory"] > 0
    assert own["advice"]["devices"].endswith("xcpu")
    named = api("POST", "specs/validate", {"spec": SPEC, "devices": "8xH100"}).json()
    assert named["advice"]["devices"] == "8xH100-80"
    wrong = api("POST", "specs/validate", {"spec": SPEC, "devices": "8xTPU"})
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["path"] == "devices"
