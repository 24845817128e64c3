"""Deleting a run: who may, when, what goes, and what it leaves alone."""

import hashlib
import json
from typing import Any

import pytest

from engine.records.shards import write_shard
from tests.webapp.law10 import build_world
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api, Driver, metrics, start
from webapp import queue, storage
from webapp.accounts.models import AuditEntry, Project, User
from webapp.experiments import services
from webapp.experiments.models import Attempt, Checkpoint, Removal, Run, Upload
from webapp.monitoring import rollups
from webapp.monitoring.ingest import parsing, storing
from webapp.monitoring.models import Gap, Point, Rollup, RunEvent, Series, Writer
from webapp.problems import RefusedError
from webapp.reviews import services as reviews
from webapp.reviews.models import Comment, Queue, QueueItem, Trajectory
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric

OF_RUNS = (
    Attempt, Checkpoint, Comment, Gap, Point, QueueItem, Rollup, RunEvent, Series, Trajectory,
    Upload, Writer,
)  # fmt: skip


def report(driver: Driver, name: str) -> str:
    """One of everything that a run brings; the SHA-256 of its shard."""
    blob, shard, rows = write_shard([trajectory(name=name)])
    services.put_upload(driver.run.pk, blob, shard)
    plain = {"source": "s", "at": 1.0}
    items: list[Any] = [
        *(metrics(step, step, loss=1.0) for step in range(1, 70)),
        {**plain, "kind": "log", "seq": 1, "text": "hello"},
        {**plain, "kind": "gap", "seq": 2, "what": "thinned", "items": 1, "since": 1},
        {**plain, "kind": "trajectories", "seq": 3, "shard": shard, "rows": rows},
        {**plain, "kind": "checkpoint", "seq": 4, "stage": 0, "step": 1, "version": 1,
         "path": "checkpoints/1", "files": {"a": {"size": 1}}},
    ]  # fmt: skip
    outcome = storing.store(driver.token, parsing.parse(_body(items)))
    assert not outcome.rejected
    while rollups.roll_up_some():
        pass
    folder = storage._place()[1] + f"/runs/{driver.run.pk}/checkpoints/1"
    storage._place()[0].makedirs(folder)
    storage._place()[0].pipe_file(f"{folder}/a", b"x")
    return shard


def _body(items: list[Any]) -> bytes:
    return json.dumps({"items": items}).encode()


def put_away(run: Run, user: User) -> None:
    services.fail_attempt(run.attempts.get().pk, "over")
    services.archive(run.pk, user)


def has_files(run_id: str) -> bool:
    return bool(storage._place()[0].exists(f"{storage._place()[1]}/runs/{run_id}"))


def rows_of_runs() -> dict[str, int]:
    return {model.__name__: model.objects.count() for model in OF_RUNS}


def test_it_leaves_nothing_of_the_run_and_everything_of_others(
    driver: Driver, launch: Any, owner: User, api: Api, monkeypatch: Any
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(queue, "send", lambda name, *ids: sent.append(name))
    kept = start(launch())
    shared = report(kept, "t-kept")
    before = rows_of_runs()
    own = report(driver, "t-gone")
    blob, same, _ = write_shard([trajectory(name="t-kept")])
    assert same == shared and services.put_upload(driver.run.pk, blob, shared)
    reviews.create_queue(
        driver.run, owner, name="looked at", rubric=Rubric(), wanted=Filter(), size=1
    )
    reviews.add_comment(driver.run.trajectories.get(), owner, "odd")
    child = launch()
    Run.objects.filter(pk=child.pk).update(parent=driver.run)
    put_away(driver.run, owner)

    assert api("DELETE", f"runs/{driver.run.pk}").status_code == 204
    assert rows_of_runs() == before  # the child's attempt is there instead of the deleted one
    assert not Queue.objects.exists()
    assert set(Run.objects.values_list("pk", "parent")) == {(kept.run.pk, None), (child.pk, None)}
    assert AuditEntry.objects.filter(action="run.delete", target=driver.run.pk).exists()
    assert sent[-1] == "caravan.remove"
    assert has_files(driver.run.pk), "files go after the rows"
    assert services.remove_leftovers() == 3
    assert not has_files(driver.run.pk) and has_files(kept.run.pk)
    assert not storage.has_blob(own)
    assert storage.has_blob(shared), "another run uploaded the same bytes"
    assert services.remove_leftovers() == 0


def test_a_blob_that_is_a_dataset_too_stays(driver: Driver, owner: User) -> None:
    dataset = services.create_dataset(driver.run.project, owner, "tasks", "tasks")
    line = b'{"prompt": "a", "answer": "b"}'
    version = services.add_dataset_version(dataset, owner, [line], source={"kind": "upload"})
    services.put_upload(driver.run.pk, storage.read_blob(version.blob), version.blob)
    put_away(driver.run, owner)
    services.delete_run(driver.run.pk, owner)
    services.remove_leftovers()
    assert storage.has_blob(version.blob)


def test_removal_goes_on_where_it_was_cut_short(
    driver: Driver, owner: User, monkeypatch: Any
) -> None:
    for body in (b"one", b"two"):
        services.put_upload(driver.run.pk, body, hashlib.sha256(body).hexdigest())
    put_away(driver.run, owner)
    services.delete_run(driver.run.pk, owner)
    removed: list[str] = []

    def break_down(sha256: str) -> None:
        if removed:
            raise OSError("storage is away")
        removed.append(sha256)

    monkeypatch.setattr(storage, "remove_blob", break_down)
    with pytest.raises(OSError):
        services.remove_leftovers()
    assert Removal.objects.count() == 1
    monkeypatch.undo()
    assert services.remove_leftovers() == 1
    assert not storage.has_blob(hashlib.sha256(b"two").hexdigest())


def test_only_an_archived_run_that_has_ended_is_deleted(
    driver: Driver, owner: User, api: Api
) -> None:
    path = f"runs/{driver.run.pk}"
    answer = api("DELETE", path)
    assert (answer.status_code, "running: stop it" in answer.json()["detail"]) == (409, True)
    services.fail_attempt(driver.attempt.pk, "over")
    answer = api("DELETE", path)
    assert (answer.status_code, "Archive" in answer.json()["detail"]) == (409, True)
    services.archive(driver.run.pk, owner)
    assert api("DELETE", path).status_code == 204
    assert api("DELETE", path).status_code == 404


def test_what_was_judged_or_built_from_it_holds_it(project: Project, owner: User) -> None:
    world = build_world(project, owner)
    run = Run.objects.get(pk=world["runs"])
    held = Queue.objects.get()
    reviews.judge(held.items.get(), owner, choice="accepted")
    put_away(run, owner)
    dataset = services.create_dataset(project, owner, "accepted", "trajectories")
    version = reviews.make_dataset(held, dataset, owner)
    with pytest.raises(RefusedError) as refused:
        services.delete_run(run.pk, owner)
    assert refused.value.status == 409
    for named in ("version 1 of dataset 'accepted'", f"review queue {held.name!r}"):
        assert named in refused.value.detail
    version.delete()
    held.items.get().verdicts.all().delete()
    services.delete_run(run.pk, owner)
    assert not Run.objects.filter(pk=run.pk).exists()


def test_only_admins_delete(driver: Driver, owner: User, editor: User) -> None:
    put_away(driver.run, owner)
    assert Api(editor)("DELETE", f"runs/{driver.run.pk}").status_code == 403
    assert Run.objects.filter(pk=driver.run.pk).exists()


def test_the_page_offers_it_to_admins_for_archived_runs(
    driver: Driver, owner: User, editor: User, page: Any
) -> None:
    address = f"/runs/{driver.run.pk}/"
    button = f'action="/runs/{driver.run.pk}/delete"'
    assert button not in page.get(address).content.decode()
    put_away(driver.run, owner)
    assert button in page.get(address).content.decode()
    other = type(page)()
    other.force_login(editor)
    assert button not in other.get(address).content.decode()
    answer = page.post(f"/runs/{driver.run.pk}/delete", follow=True)
    assert "is deleted" in answer.content.decode()
    assert not Run.objects.exists()


def test_a_deleted_run_leaves_no_name_and_colour_to_two_others(
    run: Run, launch: Any, owner: User
) -> None:
    second = launch()
    put_away(run, owner)
    services.delete_run(run.pk, owner)
    third = launch()
    assert third.name != second.name
    assert third.number != second.number
