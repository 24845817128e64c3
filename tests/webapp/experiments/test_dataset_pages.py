"""Datasets as people see them: lineage both ways, spread, samples, and what may be deleted."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from tests.webapp.support import SPEC, Api, Driver
from webapp import storage
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Dataset, DatasetVersion, Run
from webapp.experiments.services.deletion import remove_leftovers
from webapp.experiments.services.distribution import MOST_VALUES, Spread
from webapp.reviews.models import Queue

PAIR = {"prompt": "p", "chosen": "a", "rejected": "b"}


def add(dataset: Dataset, user: User, *rows: Any, **source: Any) -> DatasetVersion:
    lines = [json.dumps(row).encode() for row in rows]
    return services.add_dataset_version(dataset, user, lines, source=source or {"kind": "upload"})


@pytest.fixture
def dataset(project: Project, owner: User) -> Dataset:
    return services.create_dataset(project, owner, "kept <i>pairs", "pairs")


@pytest.fixture
def learner(project: Project, owner: User, dataset: Dataset) -> Run:
    version = add(dataset, owner, PAIR)
    stage = {"kind": "dpo", "dataset": version.pk}
    spec = services.check_spec({**SPEC, "stages": [*SPEC["stages"], stage]})
    return services.launch_run(project, owner, spec, services.Launch(name="learns"))


@given(st.lists(st.floats(-1e6, 1e6, allow_nan=False) | st.integers(-20, 20), max_size=60))
def test_every_row_with_a_difficulty_is_in_one_bar(values: list[float]) -> None:
    spread = Spread()
    for value in values:
        spread.add({"difficulty": value})
    bars = spread.difficulties
    assert sum(rows for _, _, rows in bars) == len(values)
    assert [low for low, _, _ in bars] == sorted(low for low, _, _ in bars)
    if len(set(map(float, values))) <= MOST_VALUES:
        counted = Counter(map(float, values))
        assert {low: rows for low, high, rows in bars if low == high} == counted


@pytest.mark.parametrize("value", [None, "hard", True, float("nan"), float("inf"), 10**400])
def test_what_is_no_difficulty_is_left_out(value: Any) -> None:
    spread = Spread()
    spread.add({"difficulty": value, "category": "a"})
    spread.add({"hops": 3, "category": ""})
    assert [bar for bar in spread.difficulties if bar[0] != 3.0] == []
    assert spread.categories == {"a": 1, "none": 1}


def test_a_version_that_a_run_learns_from_is_not_deleted(
    page: Client, api: Api, dataset: Dataset, learner: Run
) -> None:
    path = f"datasets/{dataset.pk}/versions/1"
    answer = api("DELETE", path)
    assert answer.status_code == 409
    assert "run 'learns' learned from" in answer.json()["detail"]
    told = page.post(f"/datasets/{dataset.pk}/delete", {"number": "1"}, follow=True)
    assert "run &#x27;learns&#x27;" in told.content.decode()
    assert api("DELETE", f"datasets/{dataset.pk}").status_code == 409
    assert DatasetVersion.objects.count() == 1


def test_one_that_nothing_needs_goes_with_its_rows_and_its_number_is_not_given_again(
    page: Client, api: Api, dataset: Dataset, owner: User, editor: User
) -> None:
    first, second = add(dataset, owner, PAIR), add(dataset, owner, PAIR, PAIR)
    assert Api(editor)("DELETE", f"datasets/{dataset.pk}/versions/2").status_code == 403
    assert Api(editor)("DELETE", f"datasets/{dataset.pk}").status_code == 403
    new = Api(editor)("POST", "datasets", {"name": "a slip", "kind": "tasks"}).json()["id"]
    assert Api(editor)("DELETE", f"datasets/{new}").status_code == 204
    page.post(f"/datasets/{dataset.pk}/delete", {"number": "2"})
    remove_leftovers()
    assert not storage.has_blob(second.blob)
    assert storage.has_blob(first.blob)
    assert add(dataset, owner, PAIR).number == 3
    for number in (1, 3):
        assert api("DELETE", f"datasets/{dataset.pk}/versions/{number}").status_code == 204
    answer = page.post(f"/datasets/{dataset.pk}/delete", {"number": ""})
    assert answer.headers["Location"] == f"/projects/{dataset.project_id}/datasets/"
    assert not Dataset.objects.exists()


def test_bytes_that_another_version_holds_stay(api: Api, dataset: Dataset, owner: User) -> None:
    first = add(dataset, owner, PAIR)
    assert add(dataset, owner, PAIR).blob == first.blob
    assert api("DELETE", f"datasets/{dataset.pk}/versions/2").status_code == 204
    remove_leftovers()
    assert storage.has_blob(first.blob)


def test_lineage_leads_both_ways(
    page: Client, api: Api, dataset: Dataset, learner: Run, owner: User, driver: Driver
) -> None:
    queue = Queue.objects.create(
        project=dataset.project, run=driver.run, name="Who <b>wins", rubric={}
    )
    made = {"kind": "labels", "queue": queue.pk, "run": driver.run.pk, "accepted": 5}
    second = add(dataset, owner, PAIR, **made)
    text = page.get(f"/datasets/{dataset.pk}/").content.decode()
    assert f"/queues/{queue.pk}/" in text and "Who &lt;b&gt;wins" in text
    assert f"/runs/{driver.run.pk}/lineage" in text and "<i>pairs" not in text
    first = page.get(f"/datasets/{dataset.pk}/?version=1").content.decode()
    assert f"/runs/{learner.pk}/lineage" in first
    found = api("GET", f"datasets/{dataset.pk}/versions/2/lineage").json()
    assert (found["run_id"], found["queue_id"], found["learners"]) == (driver.run.pk, queue.pk, [])
    (used,) = api("GET", f"datasets/{dataset.pk}/versions/1/lineage").json()["learners"]
    assert used == {"run_id": learner.pk, "name": "learns", "stage": 3}

    below = api("GET", f"runs/{learner.pk}/lineage").json()
    assert [(one["stage"], one["number"]) for one in below["learned"]] == [(3, 1)]
    above = api("GET", f"runs/{driver.run.pk}/lineage").json()
    assert [one["id"] for one in above["versions"]] == [second.pk]
    assert [one["id"] for one in above["queues"]] == [queue.pk]
    shown = page.get(f"/runs/{driver.run.pk}/lineage").content.decode()
    assert f"/datasets/{dataset.pk}/?version=2" in shown and f"/queues/{queue.pk}/" in shown
    shown = page.get(f"/runs/{learner.pk}/lineage").content.decode()
    assert f"/datasets/{dataset.pk}/?version=1" in shown


def test_a_run_knows_what_started_from_it(
    page: Client, api: Api, driver: Driver, owner: User, project: Project
) -> None:
    parent = driver.run
    checkpoint = parent.checkpoints.create(
        attempt=driver.attempt, stage=2, step=20, policy_version=9, path="checkpoints/1",
        files={"model.safetensors": {"size": 1}}, created_at=timezone.now(),
    )  # fmt: skip
    spec = services.check_spec(SPEC)
    services.launch_run(project, owner, spec, services.Launch(parent=parent))
    services.launch_run(project, owner, spec, services.Launch(checkpoint=checkpoint))
    services.evaluate_checkpoint(checkpoint, owner, services.Wanted())
    services.try_checkpoint(checkpoint, owner, services.Tried(position=0))
    found = api("GET", f"runs/{parent.pk}/lineage").json()
    assert [one["kind"] for one in found["children"]] == ["try", "evaluation", "fork", "clone"]
    assert found["checkpoints"] == [{"id": checkpoint.pk, "stage": 2, "step": 20, "forks": 3}]
    text = page.get(f"/runs/{parent.pk}/lineage").content.decode()
    assert all(f"/runs/{one['id']}/lineage" in text for one in found["children"])
    child = found["children"][0]["id"]
    assert api("GET", f"runs/{child}/lineage").json()["checkpoint_id"] == checkpoint.pk
    assert f"/runs/{parent.pk}/lineage" in page.get(f"/runs/{child}/lineage").content.decode()


def test_wrong_rows_are_named_and_nothing_is_stored(page: Client, dataset: Dataset) -> None:
    rows = [PAIR, {"prompt": "p"}, PAIR, "{", {**PAIR, "prompt": ""}]
    body = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    file = SimpleUploadedFile("rows.jsonl", body.encode())
    answer = page.post(f"/datasets/{dataset.pk}/upload", {"file": file})
    assert answer.status_code == 422
    text = answer.content.decode()
    assert all(where in text for where in ("rows.2.chosen", "rows.2.rejected", "rows.4", "rows.5"))
    assert not DatasetVersion.objects.exists()


def test_the_page_opens_at_any_row_and_without_its_rows(
    page: Client, dataset: Dataset, owner: User
) -> None:
    address = f"/datasets/{dataset.pk}/"
    assert "No version yet" in page.get(address).content.decode()
    rows = [{**PAIR, "prompt": f"row {n}", "difficulty": n % 4} for n in range(50)]
    version = add(dataset, owner, *rows)
    text = page.get(f"{address}?from=45").content.decode()
    assert "row 45" in text and "row 44" not in text
    assert "Rows by difficulty" in text and f"?dataset={version.pk}&amp;as=dpo" in text
    for wrong in ("from=-1", "from=10000000000000000000000", "version=x", "from=x"):
        assert page.get(f"{address}?{wrong}").status_code == 200
    storage.remove_blob(version.blob)
    assert "missing from storage" in page.get(address).content.decode()


def test_the_queries_of_both_pages_do_not_grow(
    page: Client, dataset: Dataset, learner: Run, owner: User, launch: Callable[..., Run]
) -> None:
    def counts() -> list[int]:
        found = []
        for address in (f"/datasets/{dataset.pk}/", f"/runs/{learner.pk}/lineage"):
            with CaptureQueriesContext(connection) as queries:
                assert page.get(address).status_code == 200
            found.append(len(queries))
        return found

    spec = services.check_spec(learner.spec)
    services.launch_run(learner.project, owner, spec, services.Launch(parent=learner))
    add(dataset, owner, PAIR, kind="run", run=learner.pk)
    counts()
    few = counts()
    for _ in range(5):
        services.launch_run(learner.project, owner, spec, services.Launch(parent=learner))
        add(dataset, owner, PAIR, kind="run", run=learner.pk)
    assert counts() == few


def test_a_source_that_names_what_was_deleted_says_so(
    page: Client, dataset: Dataset, owner: User
) -> None:
    add(dataset, owner, PAIR, kind="labels", queue="que_0", run="run_0")
    text = page.get(f"/datasets/{dataset.pk}/").content.decode()
    assert text.count("deleted") >= 2
