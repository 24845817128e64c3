"""Trying a checkpoint on one task: which task, the run that plays it, and the way to its replay."""

import json
from typing import Any

import pytest
import zstandard
from django.test import Client
from django.utils import timezone

from engine.records.shards import write_shard
from tests.webapp.law10 import judged
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api, Driver, start
from webapp import storage
from webapp.accounts.models import User
from webapp.experiments import services
from webapp.experiments.evaluations import evaluations_of
from webapp.experiments.models import Checkpoint, Run
from webapp.experiments.tries import MOST_TASKS, tasks_of
from webapp.reviews.models import Trajectory

TASKS = [
    {"id": f"t{n}", "category": "3 hops", "prompt": f"What is {city}?", "answer": str(n), "hops": 3}
    for n, city in enumerate(["Bern", "Zürich", "北京", "<b>Rome</b>"])
]


def keep_tasks(run: Run, rows: list[Any], kind: str = "held_out") -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    packed = zstandard.ZstdCompressor().compress(text.encode())
    storage.write_run_file(run.pk, f"synthesis/{kind}.jsonl.zst", packed)


@pytest.fixture
def checkpoint(driver: Driver) -> Checkpoint:
    keep_tasks(driver.run, TASKS)
    return driver.run.checkpoints.create(
        attempt=driver.attempt, stage=2, step=20, policy_version=9, path="checkpoints/1",
        files={"model.safetensors": {"size": 1}}, created_at=timezone.now(),
    )  # fmt: skip


def play(driver: Driver) -> Trajectory:
    """What the driver of a try sends."""
    blob, shard, rows = write_shard([trajectory(name=f"t_{driver.run.number}", purpose="evaluate")])
    storage.put_blob(blob)
    return Trajectory.objects.create(
        run=driver.run, attempt=driver.attempt, project=driver.run.project, shard=shard, cursor=1,
        **rows[0],
    )  # fmt: skip


def test_tasks_are_found_by_their_words_and_keep_their_places(
    api: Api, checkpoint: Checkpoint
) -> None:
    found = api("GET", f"checkpoints/{checkpoint.pk}/tasks").json()
    assert [one["prompt"] for one in found] == [task["prompt"] for task in TASKS]
    (only,) = api("GET", f"checkpoints/{checkpoint.pk}/tasks?q=北京").json()
    assert (only["position"], only["answer"]) == (2, "2")
    part = api("GET", f"checkpoints/{checkpoint.pk}/tasks?start=1&count=2").json()
    assert [one["position"] for one in part] == [1, 2]
    assert api("GET", f"checkpoints/{checkpoint.pk}/tasks?tasks=quick").json() == []


def test_tasks_of_a_dataset_are_those_that_the_run_is_judged_by(run: Run) -> None:
    keep_tasks(run, TASKS[:1])
    packed = zstandard.ZstdCompressor().compress(json.dumps(TASKS[1]).encode())
    storage.write_run_file(run.pk, "tasks/held_out.jsonl.zst", packed)
    assert [one.prompt for one in tasks_of(run)] == ["What is Bern?"]
    run.spec["evaluation"]["dataset"] = "ver_0123456789abcdef"
    assert [one.prompt for one in tasks_of(run)] == ["What is Zürich?"]


def test_a_broken_file_of_tasks_gives_what_can_be_read(run: Run) -> None:
    assert tasks_of(run) == []
    storage.write_run_file(run.pk, "synthesis/held_out.jsonl.zst", b"no zstd")
    assert tasks_of(run) == []
    keep_tasks(run, [TASKS[0], 5, {"prompt": {"a": 1}}])
    assert [one.prompt for one in tasks_of(run)] == ["What is Bern?", "", "{'a': 1}"]
    keep_tasks(run, [TASKS[0]] * (MOST_TASKS + 5))
    assert len(tasks_of(run)) == MOST_TASKS


def test_a_task_by_its_place_is_a_run_that_plays_it_alone(api: Api, checkpoint: Checkpoint) -> None:
    made = api("POST", f"checkpoints/{checkpoint.pk}/try", {"position": 2, "temperature": 0.7})
    assert made.status_code == 201
    stages = made.json()["spec"]["stages"]
    assert [stage["kind"] for stage in stages] == ["synthesise", "evaluate"]
    assert (stages[1]["position"], stages[1]["temperature"]) == (2, 0.7)
    assert made.json()["checkpoint_id"] == checkpoint.pk
    assert made.json()["tags"] == ["evaluation", "try"]


def test_without_a_word_one_is_drawn_among_those_that_are_there(
    api: Api, checkpoint: Checkpoint
) -> None:
    places = {
        api("POST", f"checkpoints/{checkpoint.pk}/try", {}).json()["spec"]["stages"][1]["position"]
        for _ in range(8)
    }
    assert places <= {0, 1, 2, 3}
    assert len(places) > 1


def test_a_question_of_ones_own_needs_its_answer(api: Api, checkpoint: Checkpoint) -> None:
    path = f"checkpoints/{checkpoint.pk}/try"
    asked = api("POST", path, {"question": "Where is <Bern>?", "answer": "CH"}).json()
    stage = asked["spec"]["stages"][1]
    assert (stage["question"], stage["answer"], stage["position"]) == (
        "Where is <Bern>?", "CH", None,
    )  # fmt: skip
    refused = api("POST", path, {"question": "Where?"})
    assert refused.status_code == 422
    assert {one["path"] for one in refused.json()["errors"]} == {
        "stages.1.answer",
        "stages.1.question",
    }
    far = api("POST", path, {"position": 10**6})
    assert {one["path"] for one in far.json()["errors"]} >= {"stages.1.position"}


def test_it_stands_not_among_the_evaluations_of_the_checkpoint(
    page: Client, checkpoint: Checkpoint, owner: User
) -> None:
    tried = services.try_checkpoint(checkpoint, owner, services.Tried(position=1))
    judged(tried, start(tried).attempt, "3 hops")
    assert evaluations_of(checkpoint.run) == []
    assert len(evaluations_of(tried)) == 1


def test_the_page_lists_tasks_and_starts_what_was_chosen(
    page: Client, checkpoint: Checkpoint
) -> None:
    address = f"/runs/{checkpoint.run_id}/try"
    text = page.get(f"{address}?checkpoint={checkpoint.pk}").content.decode()
    assert "&lt;b&gt;Rome&lt;/b&gt;" in text and "北京" in text
    assert "Try it" in page.get(f"/runs/{checkpoint.run_id}/").content.decode()
    few = page.get(f"{address}?q=Bern", headers={"HX-Request": "true"}).content.decode()
    assert "Bern" in few and "Rome" not in few and "<html" not in few
    for given, place in (({"task": "3", "how": ""}, 3), ({"how": "position", "position": "1"}, 1)):
        answer = page.post(address, {"checkpoint": checkpoint.pk, **given})
        new = Run.objects.order_by("-number")[0]
        assert answer.headers["Location"] == f"/runs/{new.pk}/played"
        assert new.spec["stages"][1]["position"] == place
    wrong = page.post(address, {"checkpoint": checkpoint.pk, "how": "question", "question": "Why?"})
    assert wrong.status_code == 422
    assert 'value="Why?"' in wrong.content.decode()
    wrong = page.post(address, {"checkpoint": checkpoint.pk, "how": "position", "position": ""})
    assert wrong.status_code == 422
    assert page.post(address, {"checkpoint": "ckp_0", "how": "random"}).status_code == 404


def test_it_waits_then_goes_to_the_replay(
    page: Client, checkpoint: Checkpoint, owner: User
) -> None:
    tried = services.try_checkpoint(checkpoint, owner, services.Tried(position=1))
    address = f"/runs/{tried.pk}/played"
    htmx = {"HX-Request": "true"}
    waiting = page.get(address, headers=htmx).content.decode()
    assert "waits for a free place" in waiting and "every 1s" in waiting
    driver = start(tried)
    assert "every 1s" in page.get(address, headers=htmx).content.decode()
    found = play(driver)
    assert page.get(address, headers=htmx).headers["HX-Redirect"] == f"/trajectories/{found.pk}/"
    assert page.get(address).headers["Location"] == f"/trajectories/{found.pk}/"


def test_a_try_that_failed_says_why(page: Client, checkpoint: Checkpoint, owner: User) -> None:
    tried = services.try_checkpoint(checkpoint, owner, services.Tried(position=1))
    Run.objects.filter(pk=tried.pk).update(
        state="failed", state_reason="<i>no GPU</i>", ended_at=timezone.now()
    )
    text = page.get(f"/runs/{tried.pk}/played").content.decode()
    assert "was not played" in text and "&lt;i&gt;no GPU" in text and "every 1s" not in text
    assert f"/runs/{checkpoint.run_id}/try" in text


def test_a_run_without_checkpoint_teaches_and_its_removed_ones_are_refused(
    page: Client, api: Api, run: Run, checkpoint: Checkpoint
) -> None:
    Checkpoint.objects.update(removed_at=timezone.now())
    assert "No checkpoint to try" in page.get(f"/runs/{run.pk}/try").content.decode()
    assert api("POST", f"checkpoints/{checkpoint.pk}/try", {}).status_code == 410
