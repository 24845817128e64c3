"""What the Launch page is told about a spec while it is edited."""

from typing import Any

from django.test import Client
from django.urls import reverse

from engine.planner import NEEDS, plan_run
from engine.spec import load_spec
from webapp.accounts.models import Project, User
from webapp.experiments.recipes import recipe


def checked(owner: User, project: Project, text: str, devices: str = "") -> dict[str, Any]:
    client = Client()
    client.force_login(owner)
    answer = client.post(
        reverse("launch_check", args=[project.pk]),
        {"text": text, "devices": devices},
        content_type="application/json",
    )
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


def test_it_says_what_the_run_would_take(owner: User, project: Project) -> None:
    text = recipe("kg-search").text
    spec, _ = load_spec(text)
    assert spec is not None
    plan = checked(owner, project, text)["plan"]
    assert plan == plan_run(spec).figures()
    assert [stage["kind"] for stage in plan["stages"]] == ["sft", "rl"]


def test_it_advises_for_the_devices_that_are_named(owner: User, project: Project) -> None:
    text = recipe("kg-search").text
    own = checked(owner, project, text)
    assert own["advice"]["devices"] == "2xcpu"
    assert own["devices_problem"] == ""
    named = checked(owner, project, text, "8xH100")
    assert named["advice"]["devices"] == "8xH100-80"
    assert named["advice"]["suggested"] == "grpo"
    assert {one["algorithm"] for one in named["advice"]["verdicts"]} == set(NEEDS)


def test_devices_that_cannot_be_read_leave_the_plan(owner: User, project: Project) -> None:
    for wrong in ("8xTPU", "x" * 200):
        told = checked(owner, project, recipe("kg-search").text, wrong)
        assert told["advice"] is None
        assert told["devices_problem"]
        assert told["plan"]["stages"]


def test_a_spec_that_is_not_valid_has_no_plan(owner: User, project: Project) -> None:
    told = checked(owner, project, "name: my-run\nstages: []\n")
    assert told["plan"] is None
    assert told["advice"] is None
    assert told["problems"]
