"""Runs and experiments: filters find, pages go on where they stopped, what lists cost."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp.support import SPEC, Api, Driver
from webapp.accounts.access import Actor
from webapp.accounts.models import Project, User
from webapp.experiments import queries, services
from webapp.experiments.models import Experiment, Run
from webapp.monitoring.headline import metric_named
from webapp.monitoring.models import Series
from webapp.paging import keyset
from webapp.problems import RefusedError

Launcher = Callable[..., Run]


@pytest.fixture
def runs(launch: Launcher, project: Project, owner: User) -> dict[str, Run]:
    """Three runs that differ in what filters ask for."""
    plain = launch(seed=1)
    sft_only = launch(name="warm up", stages=SPEC["stages"][:2], tags=["baseline"])
    long = launch(name="long one", stages=[*SPEC["stages"]], seed=3)
    services.stop(sft_only.pk, owner)
    Run.objects.filter(pk=long.pk).update(
        created_at=timezone.now() - timedelta(days=400), notes="with Quotation marks"
    )
    for run, value in [(plain, 0.4), (long, 0.8), (sft_only, float("nan"))]:
        for name in (metric_named("success"), "own/metric"):
            Series.objects.create(
                run=run,
                attempt=run.attempts.get(),
                name=name,
                axis="trainer_step",
                last_value=value,
            )
    Run.objects.filter(pk=plain.pk).update(headline={metric_named("success"): 0.4})
    Run.objects.filter(pk=long.pk).update(headline={metric_named("success"): 0.8})
    return {"plain": plain, "sft": sft_only, "long": long}


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("", {"plain", "sft", "long"}),
        ("status:queued", {"plain", "long"}),
        ("status:active", {"plain", "long"}),
        ("-status:queued", {"sft"}),
        ("algo:cispo", {"plain", "long"}),
        ("-algo:cispo", {"sft"}),
        ("tag:baseline", {"sft"}),
        ("tag:other", set()),
        ("experiment:TRY", {"plain"}),
        ("user:owner", {"plain", "sft", "long"}),
        ("spec.seed:3", {"long"}),
        ("spec.rollout.workers:1", {"plain", "sft", "long"}),
        ("long", {"long"}),
        ('"quotation marks"', {"long"}),
        ("success>0.5", {"long"}),
        ("success>=0.4 success<0.8", {"plain"}),
        ("success=0.8", {"long"}),
        (f"{metric_named('success')}<0.5", {"plain"}),
        ("no/such>0", set()),
        ("created<2026-01-01", {"long"}),
        ("algo:cispo status:queued success<0.5", {"plain"}),
    ],
)
def test_the_filter_language(runs: dict[str, Run], owner: User, q: str, found: set[str]) -> None:
    page = queries.list_runs(Actor(owner), q=q)
    names = {run.pk: name for name, run in runs.items()}
    if q == "created<2026-01-01":
        Run.objects.filter(pk=runs["long"].pk).update(created_at="2025-06-01T00:00:00Z")
        page = queries.list_runs(Actor(owner), q=q)
    assert {names[run.pk] for run in page.items} == found


@pytest.mark.parametrize(
    "q",
    [
        "status:flying",
        "colour:red",
        'name:"open',
        "success>high",
        "spec.a;b:1",
        "spec.name.regex:(a+)+$",
        "spec.in.seed:1",
        "created>soon",
        "succes>0.5",
    ],
)
def test_a_filter_that_makes_no_sense_is_named(api: Api, q: str) -> None:
    answer = api("GET", f"runs?q={q}")
    assert answer.status_code == 422
    assert answer.json()["detail"]


def test_a_misspelt_word_of_a_metric_is_no_empty_list(runs: dict[str, Run], owner: User) -> None:
    with pytest.raises(RefusedError, match="do you mean success?"):
        queries.list_runs(Actor(owner), q="succes>0.5")
    Series.objects.filter(run=runs["long"], name="own/metric").update(name="succes")
    found = queries.list_runs(Actor(owner), q="succes>0.5").items
    assert [run.pk for run in found] == [runs["long"].pk]
    for narrower in ("tag:other succes>0.5", "succes>0.9 succes<1"):
        assert queries.list_runs(Actor(owner), q=narrower).items == []


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_cannot_be_stored_is_refused(api: Api, run: Run, text: str) -> None:
    answer = api("PATCH", f"runs/{run.pk}", {"notes": text})
    assert answer.status_code == 422
    assert api("GET", f"runs/{run.pk}").json()["notes"] == ""


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(q=st.text(max_size=40))
def test_any_text_is_a_filter_or_a_problem(owner: User, q: str) -> None:
    try:
        queries.list_runs(Actor(owner), q=q)
    except RefusedError as error:
        assert error.detail


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("-success", ["long", "plain", "sft"]),
        ("success", ["plain", "long", "sft"]),
        ("name", ["long", "plain", "sft"]),
        ("created", ["long", "plain", "sft"]),
        ("-own/metric", ["long", "plain", "sft"]),
        ("own/metric", ["plain", "long", "sft"]),
    ],
)
def test_runs_are_sorted_with_missing_values_last(
    runs: dict[str, Run], owner: User, sort: str, order: list[str]
) -> None:
    found: list[str] = []
    cursor = None
    while True:
        page = queries.list_runs(Actor(owner), sort=sort, cursor=cursor, limit=1)
        found += [run.pk for run in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == [runs[name].pk for name in order]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.sampled_from("abc"), min_size=1, max_size=12), limit=st.integers(1, 5))
def test_paging_gives_every_row_once(project: Project, names: list[str], limit: int) -> None:
    Experiment.objects.all().delete()
    made = [
        Experiment.objects.create(project=project, name=f"{index}", notes=notes)
        for index, notes in enumerate(names)
    ]
    rows, cursor = [], None
    while True:
        page = keyset(Experiment.objects.all(), ("-notes", "id"), cursor, limit)
        rows += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert rows == sorted(made, key=lambda row: ([-ord(letter) for letter in row.notes], row.pk))


@pytest.mark.parametrize("cursor", ["x", "!!", "bnVsbA", "W10", "WzEsMiwzXQ", "eyJhIjoxfQ"])
def test_a_made_up_cursor_is_refused(api: Api, cursor: str) -> None:
    answer = api("GET", f"runs?cursor={cursor}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["path"] == "cursor"


def test_lists_ask_the_database_as_often_for_many_runs(
    api: Api, launch: Launcher, django_assert_max_num_queries: Any
) -> None:
    for number in range(2):
        launch(name=f"{number}")
    with django_assert_max_num_queries(100) as few:
        api("GET", "runs?q=algo:cispo&sort=-success")
    for number in range(2, 12):
        launch(name=f"{number}")
    with django_assert_max_num_queries(len(few.captured_queries)):
        assert len(api("GET", "runs?q=algo:cispo&sort=-success").json()["items"]) == 12


def test_a_run_of_many_parts_is_read_in_as_many_queries(
    api: Api, driver: Driver, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(14):
        detail = api("GET", f"runs/{driver.run.pk}").json()
    assert detail["attempts"][0]["state"] == "running"
    assert "token_digest" not in detail["attempts"][0]


def test_archived_runs_are_out_of_the_way(api: Api, run: Run, owner: User) -> None:
    assert api("PATCH", f"runs/{run.pk}", {"archived": True}).status_code == 409
    services.stop(run.pk, owner)
    assert api("PATCH", f"runs/{run.pk}", {"archived": True}).status_code == 200
    assert api("GET", "runs").json()["items"] == []
    assert len(api("GET", "runs?archived=true").json()["items"]) == 1


@pytest.mark.parametrize("tag", ["two words", "-minus", "a" * 41, "a:b", "💥"])
def test_a_tag_that_cannot_be_filtered_by_is_refused(api: Api, run: Run, tag: str) -> None:
    answer = api("POST", f"runs/{run.pk}/tags", {"add": [tag]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "tags"


def test_tags_are_added_and_removed(api: Api, run: Run) -> None:
    api("POST", f"runs/{run.pk}/tags", {"add": ["a", "b", "a"]})
    answer = api("POST", f"runs/{run.pk}/tags", {"add": ["c"], "remove": ["a"]}).json()
    assert answer["tags"] == ["b", "c"]


def test_runs_are_compared_field_by_field(api: Api, launch: Launcher) -> None:
    first, second = launch(seed=1), launch(seed=2, stages=SPEC["stages"][:2])
    for run, value in [(second, float("inf")), (first, 0.5)]:
        Series.objects.create(
            run=run, attempt=run.attempts.get(), name="loss", axis="trainer_step", last_value=value
        )
    answer = api("GET", f"compare?runs={first.pk},{second.pk}").json()
    differences = {row["path"]: row["values"] for row in answer["differences"]}
    assert differences["seed"] == [1, 2]
    assert differences["stages.2.kind"] == ["rl", None]
    assert "name" not in differences
    assert answer["metrics"] == {"loss": [0.5, "Infinity"]}
    assert [series["run"] for series in answer["series"]] == [first.pk, second.pk]


def test_a_baseline_is_a_run_of_the_experiment(api: Api, launch: Launcher) -> None:
    run, other = launch(), launch(name="other question")
    path = f"experiments/{run.experiment_id}"
    assert api("PATCH", path, {"baseline": other.pk}).status_code == 422
    assert api("PATCH", path, {"baseline": run.pk}).json()["baseline_id"] == run.pk
    assert api("PATCH", path, {"notes": "x"}).json()["baseline_id"] == run.pk
