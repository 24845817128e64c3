"""NaN and the infinities, and metrics that some runs lack, in everything that shows numbers."""

import json
import math
from typing import Any

import pytest
from django.test import Client

from tests.webapp.calls import call, operations, pages
from tests.webapp.law10 import build_world, fill
from tests.webapp.support import Api, downloaded, metrics, start
from webapp.accounts.models import Project, User
from webapp.monitoring.ingest import parsing
from webapp.monitoring.ingest.storing import store
from webapp.monitoring.models import Point

ODD = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def report(token: str, *items: Any) -> None:
    outcome = store(token, parsing.parse(json.dumps({"items": items}).encode()))
    assert not outcome.rejected


@pytest.fixture
def odd_world(project: Project, owner: User, launch: Any) -> dict[str, str]:
    """A project with one of everything, whose run measured nothing but what is not finite."""
    project.max_running = 2
    project.save()
    world = build_world(project, owner)
    driver = start(launch())
    for step, value in enumerate(ODD):
        named = {"train__loss": value, "eval__completion_rate": value, "rollout__success": value}
        report(driver.token, metrics(step + 1, step, **named))
    return world | {"runs": driver.run.pk, "experiments": driver.run.experiment_id}


def never(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_every_call_of_a_run_with_them_is_strict_json(odd_world: dict[str, str], api: Api) -> None:
    called = 0
    for method, path, _ in operations():
        if method != "GET" or path == "openapi.json":
            continue
        response = call(api, method, path, odd_world | {"recipes": "smoke"})
        assert response.status_code < 500, path
        kind = response.get("Content-Type", "")
        if "json" in kind:
            body = downloaded(response) if response.streaming else response.content
            for line in body.splitlines() if "ndjson" in kind else [body]:
                json.loads(line, parse_constant=never)
            called += 1
    assert called > 30


def test_every_page_of_a_run_with_them_opens(odd_world: dict[str, str], page: Client) -> None:
    opened = 0
    for route, _ in pages():
        if route.startswith("runs/") or route.startswith("projects/"):
            response = page.get("/" + fill(route, odd_world))
            assert response.status_code < 500, route
            opened += response.status_code == 200
    assert opened > 15


@pytest.mark.parametrize("text", ODD)
def test_they_come_back_as_they_were_sent(driver: Any, api: Api, page: Client, text: str) -> None:
    report(driver.token, metrics(1, 0, train__loss=text))
    stored = Point.objects.get().value
    assert stored == ODD[text] or (math.isnan(stored) and text == "NaN")
    raw = json.loads(api("GET", f"runs/{driver.run.pk}/points?after=0").content)
    assert raw["series"][0]["points"][0][2] == text
    shown = page.get(f"/runs/{driver.run.pk}/").content.decode()
    assert f'"last": "{text}"' in shown


@pytest.mark.parametrize("sort", ["loss", "-loss"])
def test_pages_of_a_sorted_list_lose_and_repeat_no_run(
    project: Project, launch: Any, api: Api, sort: str
) -> None:
    project.max_running = 20
    project.save()
    runs = []
    for value in (0.5, "NaN", None, 0.25, "Infinity", 0.5, "-Infinity", None, "NaN"):
        run = launch()
        runs.append(run.pk)
        if value is not None:
            report(start(run).token, metrics(1, 0, train__loss=value))
    seen: list[str] = []
    cursor = ""
    while True:
        answer = api("GET", f"runs?sort={sort}&limit=2" + (f"&cursor={cursor}" if cursor else ""))
        found = json.loads(answer.content)
        seen += [item["id"] for item in found["items"]]
        cursor = found["next_cursor"]
        if not cursor:
            break
    assert sorted(seen) == sorted(runs)
    finite = [run for run in seen if run in (runs[0], runs[3], runs[5])]
    assert finite[0 if sort == "loss" else -1] == runs[3]  # the smallest
    assert not {runs[i] for i in (1, 2, 7, 8)} & set(seen[:3])  # what is no number is never first
