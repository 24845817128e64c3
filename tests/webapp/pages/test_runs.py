"""The table of runs: columns of any metric and field, groups that open, all that match, queries."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.experiments.pages.run_columns import find_columns, picked_columns
from webapp.monitoring.models import Series

Launcher = Callable[..., Run]


@pytest.fixture
def page(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def measure(run: Run, name: str, value: float) -> None:
    Series.objects.create(
        run=run,
        attempt=run.attempts.get(),
        name=name,
        axis="trainer_step",
        last_step=1,
        last_value=value,
    )


def text_of(client: Client, project: Project, query: str, **headers: str) -> str:
    answer = client.get(f"/projects/{project.pk}/runs/?{query}", headers=headers)
    assert answer.status_code == 200, answer.content
    return str(answer.content.decode())


def test_any_metric_and_any_field_is_a_column(
    page: Client, project: Project, launch: Launcher
) -> None:
    measure(launch(seed=7), "own/score", 0.375)
    text = text_of(page, project, "columns=m:own/score,c:trainer.workers,s:own/score,nonsense")
    assert "0.3750" in text and "trainer.workers" in text
    assert [one.name for one in picked_columns("m:a,state,m:a,c:,x:y,m:a\0b")] == ["m:a", "state"]


def test_values_that_are_no_numbers_look_like_it(
    page: Client, project: Project, launch: Launcher
) -> None:
    measure(launch(), "own/score", math.nan)
    launch()
    text = text_of(page, project, "columns=m:own/score&sort=-own/score")
    assert '<span class="nan">NaN</span>' in text and 'class="none"' in text


def test_the_picker_knows_fields_of_every_run_and_reads_no_spec(
    project: Project, launch: Launcher
) -> None:
    oldest = launch(seed=3)
    Run.objects.filter(pk=oldest.pk).update(spec={"gone": 1})  # it is not looked at again
    with CaptureQueriesContext(connection) as queries:
        found = {one.name for one in find_columns(project.pk, "workers")}
    assert {"c:rollout.workers", "c:trainer.workers"} <= found
    assert len(queries) == 2
    assert not any('"experiments_run"."spec"' in query["sql"] for query in queries)


def test_a_config_with_very_many_fields_keeps_the_first_of_them(
    project: Project, owner: User
) -> None:
    config = {f"field_{number:05}": number for number in range(3_000)} | {"x" * 200: 1}
    services.begin_external(project, owner, config, services.Launch(name="own"))
    services.begin_external(project, owner, {"other": 1}, services.Launch(name="own"))
    kept = set(project.config_fields.values_list("path", flat=True))
    assert len(kept) == 2_000 + 1 and {"name", "config.field_00000", "config.other"} <= kept
    assert max(map(len, kept)) <= 120


def test_the_picker_is_searched_on_the_server(
    page: Client, project: Project, launch: Launcher
) -> None:
    run = launch()
    for number in range(60):
        measure(run, f"own/score_{number}", 0.0)
    found = [one.name for one in find_columns(project.pk, "score own")]
    assert len(found) == 30 and all(name.startswith("m:own/score_") for name in found)
    assert "c:trainer.workers" in [one.name for one in find_columns(project.pk, "workers")]
    assert len(find_columns(project.pk, "o")) == 30
    fragment = text_of(page, project, "find=workers", **{"HX-Request": "true"})
    assert "c:trainer.workers" in fragment and "<html" not in fragment
    assert "<html" in text_of(page, project, "find=workers")


def test_a_group_opens_into_its_runs(page: Client, project: Project, launch: Launcher) -> None:
    names = [launch(seed=seed, name=f"repeat {seed}").name for seed in (1, 2)]
    launch(seed=1, trainer={"threads": 2})
    text = text_of(page, project, "group=seed")
    assert names[0] not in text and "2 groups of 3 runs" in text.replace("\u202f", " ")
    text = text_of(page, project, "group=seed&open=2")
    assert names[1] in text and names[0] not in text
    assert "trainer.threads" in text_of(page, project, "group=variant")
    answer = page.get(f"/projects/{project.pk}/runs/?group=a..b")
    assert answer.status_code == 422 and "path of the spec" in answer.content.decode()


def test_all_that_match_are_changed(page: Client, project: Project, launch: Launcher) -> None:
    for seed in (1, 1, 2):
        launch(seed=seed)
    address = f"/projects/{project.pk}/runs/bulk"
    form = {"action": "tag", "tag": "picked", "all": "1", "q": "spec.seed:1"}
    assert page.post(address, form)["Location"].endswith("?q=spec.seed%3A1")
    assert Run.objects.filter(tags__contains=["picked"]).count() == 2
    ids = ",".join(Run.objects.values_list("pk", flat=True))
    page.post(address, {"action": "untag", "tag": "picked", "run": ids})
    assert not Run.objects.filter(tags__contains=["picked"]).exists()
    text = page.post(address, {"action": "dance"}, follow=True).content.decode()
    assert "is no action" in text


@pytest.mark.parametrize(
    "query",
    [
        "q=",
        "columns=state,m:own/score,s:own/score,c:seed,seed&sort=-own/score",
        "group=variant&columns=m:own/score,success",
        "group=name&open=try&columns=m:own/score",
        "find=own",
    ],
)
def test_the_number_of_queries_does_not_depend_on_the_number_of_runs(
    page: Client, project: Project, launch: Launcher, query: str
) -> None:
    def count() -> Any:
        with CaptureQueriesContext(connection) as queries:
            text_of(page, project, query)
        return len(queries)

    measure(launch(seed=100), "own/score", 1.0)
    count()
    few = count()
    for seed in range(12):
        measure(launch(seed=seed), "own/score", 1.0 + seed)
    assert count() == few
