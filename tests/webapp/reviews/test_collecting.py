"""A dataset of the tasks of trajectories: each once, with its answer, and back to the run."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse

from engine.records.trajectory import Trajectory as Record
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api
from webapp import storage
from webapp.accounts.models import Project, User
from webapp.experiments import services as experiments
from webapp.experiments.models import Dataset, Job, Run
from webapp.experiments.queries import rows_of
from webapp.problems import RefusedError
from webapp.reviews import collect_job, services
from webapp.reviews.bulk_reading import Read, read_many
from webapp.reviews.models import Trajectory
from webapp.reviews.queries import Filter
from workers.control import jobs as worker

pytestmark = pytest.mark.django_db


def asked(name: str, task: str, answer: str = "x", reward: float = 0.0) -> Record:
    prompt = f"What is {task}? {'…' * 600}"
    return replace(trajectory(name=name, task=task, prompt=prompt, reward=reward), answer=answer)


@pytest.fixture
def some(store: Any) -> None:
    store([
        asked("t1", "北京", reward=1.0), asked("t2", "北京"), asked("t3", "b"),
        asked("t4", "c", reward=1.0), asked("t5", "d", answer=""),
        asked("t6", ""), asked("t7", "", answer="y"),
    ])  # fmt: skip


def collected(run: Run, user: User, name: str = "hard", **narrowing: Any) -> Job:
    job = services.start_collecting(run, user, Filter(**narrowing), name)
    worker.work(job.pk)
    job.refresh_from_db()
    return job


def result(job: Job) -> dict[str, Any]:
    assert job.state == "succeeded", job.state_reason
    return dict(job.result or {})


def test_each_task_is_a_row_once_with_its_whole_prompt(some: None, run: Run, owner: User) -> None:
    job = collected(run, owner, " hard ")
    version = Dataset.objects.get(name="hard", kind="tasks").versions.get()
    rows = rows_of(version, 0, 10)
    assert sorted((row["prompt"][:10], row["answer"]) for row in rows) == sorted(
        (f"What is {task}? "[:10], answer)
        for task, answer in (("北京", "x"), ("b", "x"), ("c", "x"), ("", "y"))
    )
    assert all(len(row["prompt"]) > 600 for row in rows)
    assert result(job)["left_out"] == {"without a prompt or a right answer": 1}
    assert version.source == {
        "kind": "trajectories", "run": run.pk, "filter": {}, "left_out": result(job)["left_out"],
    }  # fmt: skip
    assert version.created_by == owner


def test_a_filter_chooses_and_a_second_time_makes_the_next_version(
    some: None, run: Run, owner: User
) -> None:
    assert result(collected(run, owner, max_reward=0.5))["number"] == 1
    second = result(collected(run, owner, min_reward=0.5))
    assert (second["number"], second["rows"]) == (2, 2)


def test_where_no_row_comes_of_it_there_is_no_dataset(some: None, run: Run, owner: User) -> None:
    job = collected(run, owner, task="d")
    assert job.state == "failed" and "rows" in job.state_reason
    assert not Dataset.objects.exists()
    with pytest.raises(RefusedError, match="No stored trajectory passes"):
        services.start_collecting(run, owner, Filter(task="none"), "hard")


def test_a_name_of_other_rows_is_refused(
    some: None, run: Run, owner: User, project: Project
) -> None:
    experiments.create_dataset(project, owner, "pairs", "pairs")
    with pytest.raises(RefusedError, match="pairs holds pairs"):
        services.start_collecting(run, owner, Filter(), "pairs")
    with pytest.raises(RefusedError, match="1 to 80 characters"):
        services.start_collecting(run, owner, Filter(), "  ")
    job = services.start_collecting(run, owner, Filter(), "later")
    experiments.create_dataset(project, owner, "later", "trajectories")
    worker.work(job.pk)
    job.refresh_from_db()
    assert job.state == "failed" and "by now" in job.state_reason


def test_trajectories_that_are_gone_are_counted(some: None, run: Run, owner: User) -> None:
    storage.remove_blob(Trajectory.objects.first().shard)  # type: ignore[union-attr]
    job = collected(run, owner)
    assert job.state == "failed"
    assert not Dataset.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_job_that_reads_can_be_stopped_and_leaves_nothing(
    some: None, run: Run, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = services.start_collecting(run, owner, Filter(), "hard")

    def stopped_meanwhile(rows: QuerySet[Trajectory]) -> Iterator[Read]:
        for count, one in enumerate(read_many(rows)):
            if count == 1:  # with the first progress written
                with ThreadPoolExecutor(1) as another:
                    another.submit(stop).result()
            yield one

    def stop() -> None:
        with transaction.atomic(), connection.cursor() as sql:
            sql.execute("SET LOCAL lock_timeout = '2s'")
            experiments.cancel_job(job.pk, owner)
        connection.close()

    monkeypatch.setattr(collect_job, "read_many", stopped_meanwhile)
    worker.work(job.pk)
    job.refresh_from_db()
    assert job.state == "stopped", job.state_reason
    assert not Dataset.objects.exists()


def test_the_same_asked_twice_is_one_job(some: None, run: Run, owner: User) -> None:
    first = services.start_collecting(run, owner, Filter(), "hard")
    assert services.start_collecting(run, owner, Filter(), "hard") == first
    assert services.start_collecting(run, owner, Filter(), "other") != first
    experiments.cancel_job(first.pk, owner)
    assert services.start_collecting(run, owner, Filter(), "hard") != first


def test_the_page_starts_it_and_the_job_leads_to_the_dataset(
    some: None, run: Run, page: Client, api: Api
) -> None:
    shown = page.get(reverse("run_trajectories", args=[run.pk]) + "?min_reward=0.5")
    assert "Dataset of their tasks" in shown.content.decode()
    address = reverse("run_tasks", args=[run.pk]) + "?max_reward=0.5"
    job = Job.objects.get(pk=page.post(address, {"name": "hard"})["Location"].split("/")[2])
    assert job.spec["filter"] == {"max_reward": 0.5}
    worker.work(job.pk)
    dataset = Dataset.objects.get(name="hard")
    link = f"{reverse('dataset', args=[dataset.pk])}?version=1"
    assert link.replace("&", "&amp;") in page.get(f"/jobs/{job.pk}/").content.decode()
    text = page.get(link).content.decode()
    assert "tasks of trajectories" in text and run.name in text
    wrong = page.post(reverse("run_tasks", args=[run.pk]) + "?min_reward=x", {"name": "hard"})
    assert wrong["Location"] == reverse("run_trajectories", args=[run.pk]) + "?min_reward=x"
    answer = api("POST", f"runs/{run.pk}/tasks", {"name": "hard", "filter": {"max_reward": 0.5}})
    assert answer.status_code == 202, answer.content
    assert json.loads(answer.content)["kind"] == "collect"
