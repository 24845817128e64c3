"""Thousands of metrics, thousands of runs, a megabyte of config."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.webapp.support import Api, Driver
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Experiment, Run
from webapp.monitoring.models import Series
from webapp.monitoring.seed import scale

METRICS = 5_000
RUNS = 2_000


def test_five_thousand_metrics_are_searched_by_the_server(
    driver: Driver, api: Api, page: Client
) -> None:
    Series.objects.bulk_create(
        Series(
            run=driver.run, attempt=driver.attempt, name=f"environment/{n:04}/reward",
            axis="trainer_step", last_step=1, last_value=0.5, cursor=1, rolled=1,
        )
        for n in range(METRICS)
    )  # fmt: skip
    found = json.loads(api("GET", f"runs/{driver.run.pk}/series?search=/0042/").content)
    assert [one["name"] for one in found["items"]] == ["environment/0042/reward"]
    listed = page.get(f"/projects/{driver.run.project_id}/runs/").content
    assert b"environment/" not in listed and len(listed) < 200_000
    for tab in ("", "charts"):  # panels are made by the script, and then only some of them
        assert page.get(f"/runs/{driver.run.pk}/{tab}").content.count(b"data-panel=") < 50


@pytest.fixture
def many(project: Project, owner: User) -> Experiment:
    spec = services.check_spec("name: many\nstages: [{kind: synthesise}]\n")
    scale.many_runs(project, owner, spec, scale.Sizes(RUNS, 1, 1, 1, 1), print)
    return Experiment.objects.get(name=f"{RUNS:,} runs")


def test_every_run_of_thousands_is_on_one_page_of_the_list(many: Experiment, api: Api) -> None:
    api("GET", "runs")  # the first call notes when the token was used
    seen, counts, cursor = list[str](), set[int](), ""
    while True:
        query = f"runs?experiment={many.pk}&limit=200" + (f"&cursor={cursor}" if cursor else "")
        with CaptureQueriesContext(connection) as queries:
            answer = json.loads(api("GET", query).content)
        counts.add(len([q for q in queries if "SAVEPOINT" not in q["sql"]]))
        seen += [item["id"] for item in answer["items"]]
        cursor = answer["next_cursor"]
        if not cursor:
            break
    assert len(seen) == len(set(seen)) == RUNS
    assert len(counts) == 1, counts


def test_a_megabyte_of_config_is_kept_and_compared(api: Api, project: Project, page: Any) -> None:
    config = {f"part_{n}": {f"field_{k}": "x" * 85 for k in range(100)} for n in range(100)}
    other = {**config, "part_50": {**config["part_50"], "field_7": "changed"}}
    runs = []
    for value in (config, other):
        body = {"project": project.pk, "name": "large", "config": value}
        answer = api("POST", "external-runs", body)
        assert answer.status_code == 201, answer.content
        runs.append(json.loads(answer.content)["run_id"])
    assert len(json.dumps(Run.objects.get(pk=runs[0]).spec)) > 950_000
    assert page.get(f"/runs/{runs[0]}/config").status_code == 200
    address = f"/projects/{project.pk}/compare/?runs={','.join(runs)}"
    assert len(page.get(address).content) < 200_000
    shown = page.get(f"{address}&part=config").content.decode()
    assert "field_7" in shown and "field_8" not in shown
    assert len(shown) < 200_000
