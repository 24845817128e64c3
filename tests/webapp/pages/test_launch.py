"""What the Launch page is told about a spec while it is edited."""

from typing import Any

from django.test import Client
from django.urls import reverse

from engine.planner import plan_run
from engine.spec import load_spec
from webapp.accounts.models import Project, User
from webapp.experiments.recipes import recipe


def checked(owner: User, project: Project, text: str) -> dict[str, Any]:
    client = Client()
    client.force_login(owner)
    answer = client.post(
        reverse("launch_check", args=[project.pk]), {"text": text}, content_type="application/json"
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


def test_a_spec_that_is_not_valid_has_no_plan(owner: User, project: Project) -> None:
    told = checked(owner, project, "name: my-run\nstages: []\n")
    assert told["plan"] is None
    assert told["problems"]
