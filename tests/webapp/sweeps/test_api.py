"""Sweeps over REST: what would be tried, launching, reading and control."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.webapp.support import SPEC, Api
from tests.webapp.sweeps.playing import LR, choice, run_of, step, train
from webapp.experiments.models import Run
from webapp.sweeps.models import Sweep

BODY: dict[str, Any] = {
    "spec": SPEC,
    "name": "rates",
    "notes": "Which rate?",
    "method": "grid",
    "space": [choice(LR, 0.001, 0.002)],
    "at_once": 2,
}


@pytest.fixture
def sweep(api: Api) -> Sweep:
    made = api("POST", "sweeps", BODY)
    assert made.status_code == 201, made.content
    return Sweep.objects.get(pk=made.json()["id"])


def test_a_preview_launches_nothing(api: Api, db: None) -> None:
    seen = api("POST", "sweeps/preview", {**BODY, "space": [choice("seed", 1, -1)]}).json()
    assert (seen["trials"], seen["tried"], seen["steps"], seen["most_steps"]) == (
        2, 2, [120, 120], 240,
    )  # fmt: skip
    assert [one["params"] for one in seen["refused"]] == [{"seed": -1}]
    assert not Sweep.objects.exists()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"space": [choice("seeed", 1)]}, "space.0"),
        ({"space": [choice("seed", 1)], "budget": {"steps": 3}}, "budget.steps"),
        ({"space": []}, "space"),
        ({"method": "guess"}, "method"),
        ({"halving": {"min_steps": 0}}, "halving.min_steps"),
        ({"name": "x" * 101}, "name"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(
    api: Api, owner: Any, change: dict[str, Any], path: str
) -> None:
    refused = api("POST", "sweeps", {**BODY, **change})
    assert refused.status_code == 422
    assert path in [one["path"] for one in refused.json()["errors"]]
    assert not Run.objects.exists()


def test_a_preset_is_named_as_a_launch_names_it(api: Api, owner: Any) -> None:
    text = json.dumps(BODY["spec"])
    made = api("POST", "presets", {"name": "Ours", "text": text}).json()
    body = {name: value for name, value in BODY.items() if name != "spec"}
    for named in ("ours", made["id"]):
        assert api("POST", "sweeps/preview", {**body, "preset": named}).status_code == 200


def test_a_spec_that_is_too_long_to_launch_is_refused(api: Api, owner: Any) -> None:
    body = {**BODY, "spec": {**BODY["spec"], "description": "x" * 200_000}}
    assert api("POST", "sweeps/preview", body).status_code == 413


def test_a_value_that_cannot_be_stored_is_refused(api: Api, owner: Any) -> None:
    refused = api("POST", "sweeps", {**BODY, "space": [choice("description", "a", "b\0")]})
    assert refused.status_code == 422 and "no NUL" in refused.json()["detail"]


def test_a_recipe_with_overrides_is_a_base_too(api: Api, owner: Any) -> None:
    body = {**BODY, "recipe": "smoke", "overrides": {"stages.1.steps": 40}}
    body.pop("spec")
    assert api("POST", "sweeps/preview", body).json()["steps"] == [55, 55]
    assert api("POST", "sweeps/preview", {**BODY, "recipe": "smoke"}).status_code == 422


def test_it_is_read_with_its_trials_and_the_best_of_them(api: Api, sweep: Sweep) -> None:
    first, second = step(sweep)
    train(first, 0.5)
    train(second, 0.75)
    step(sweep)
    found = api("GET", f"sweeps/{sweep.pk}").json()
    assert (found["state"], found["launched"], found["most"], found["best"]) == (
        "finished", 2, 2, 0.75,
    )  # fmt: skip
    assert [one["run_id"] for one in found["best_trial"]["runs"]] == [run_of(second).pk]
    assert found["plan"]["space"][0]["values"] == [0.001, 0.002]
    rows = api("GET", f"sweeps/{sweep.pk}/trials?limit=1").json()
    assert [one["params"] for one in rows["items"]] == [{LR: 0.001}]
    rest = api("GET", f"sweeps/{sweep.pk}/trials?cursor={rows['next_cursor']}").json()
    assert [(one["number"], one["value"]) for one in rest["items"]] == [(1, 0.75)]
    listed = api("GET", "sweeps").json()["items"]
    assert [(one["name"], one["best"], one["launched"]) for one in listed] == [("rates", 0.75, 2)]


def test_it_is_paused_continued_and_stopped(api: Api, sweep: Sweep) -> None:
    for action, state in (("pause", "paused"), ("continue", "running"), ("stop", "stopped")):
        assert api("POST", f"sweeps/{sweep.pk}/{action}").json()["state"] == state
    assert api("POST", f"sweeps/{sweep.pk}/pause").status_code == 409


def test_more_sweeps_and_trials_take_no_more_questions(api: Api, owner: Any) -> None:
    def asked(path: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert api("GET", path).status_code == 200
        return len(queries)

    body = {**BODY, "space": [choice("seed", *range(30))], "at_once": 2}
    first = Sweep.objects.get(pk=api("POST", "sweeps", body).json()["id"])
    step(first)
    asked("sweeps")
    few = asked("sweeps"), asked(f"sweeps/{first.pk}"), asked(f"sweeps/{first.pk}/trials")
    for _ in range(3):
        api("POST", "sweeps", body)
    first.plan = {**first.plan, "at_once": 20}
    first.save()
    assert len(step(first)) == 20
    assert few == (
        asked("sweeps"), asked(f"sweeps/{first.pk}"), asked(f"sweeps/{first.pk}/trials"),
    )  # fmt: skip
