"""Storage: what takes space, and pruning that keeps all that something refers to."""

import hashlib
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engine.records.shards import write_shard
from engine.records.trained import TrainedTokens, write_trained
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api, Driver, start
from webapp import storage
from webapp.accounts.models import AuditEntry, Membership, Project, Role, User
from webapp.experiments import services, storage_use
from webapp.experiments.models import Checkpoint, Dataset, Job, Run, State, Upload
from webapp.experiments.services import prune
from webapp.experiments.services.prune import Wish
from webapp.problems import RefusedError
from webapp.reviews import services as reviews
from webapp.reviews.models import Queue, QueueItem, Trajectory
from workers.control import jobs as worker

pytestmark = pytest.mark.django_db


def put(run: Run, path: str, data: bytes) -> None:
    storage.write_run_file(run.pk, path, data)


def exists(run: Run, path: str) -> bool:
    try:
        storage.open_run_file(run.pk, path)[0].close()
    except FileNotFoundError:
        return False
    return True


def save(driver: Driver, step: int, final: bool = False, size: int = 100) -> Checkpoint:
    """A checkpoint of two files, on storage and in its manifest."""
    path = f"checkpoints/step-{step}"
    for name in ("a", "b"):
        put(driver.run, f"{path}/{name}", b"x" * size)
    files = {name: {"size": size, "sha256": "0" * 64} for name in ("a", "b")}
    return Checkpoint.objects.create(
        run=driver.run, attempt=driver.attempt, stage=0, step=step, policy_version=step,
        path=path, files=files, final=final, created_at=timezone.now(),
    )  # fmt: skip


def end(run: Run, state: State = State.SUCCEEDED, archived: bool = False) -> None:
    now = timezone.now()
    fields = {"state": state, "ended_at": now, "archived_at": now if archived else None}
    Run.objects.filter(pk=run.pk).update(**fields)
    run.attempts.update(state=state, ended_at=now)


def shard(driver: Driver, *names: str) -> str:
    blob, sha256, rows = write_shard([trajectory(name=name) for name in names])
    services.put_upload(driver.run.pk, blob, sha256)
    for row in rows:
        Trajectory.objects.create(
            run=driver.run, attempt=driver.attempt, project=driver.run.project, shard=sha256,
            cursor=1, **row,
        )  # fmt: skip
    return sha256


def tokens(driver: Driver, *names: str) -> str:
    """What training saw of these trajectories, uploaded; the shard's name."""
    items = [TrainedTokens(name, 1, 0, left_out="no_advantage") for name in names]
    blob, name, rows = write_trained(items)
    services.put_upload(driver.run.pk, blob, name)
    for row in rows:
        driver.run.trained_tokens.create(
            attempt=driver.attempt, trajectory_id=row.pop("trajectory"), shard=name, **row
        )
    return name


def done(project: Project, user: User, **wish: Any) -> dict[str, Any]:
    job = services.start_prune(project, user, wish)
    worker.work(job.pk)
    job.refresh_from_db()
    assert job.state == "succeeded", job.state_reason
    services.remove_leftovers()
    assert job.result is not None
    return dict(job.result)


def test_it_removes_older_checkpoints_and_says_before_what_would_go(
    project: Project, owner: User, driver: Driver
) -> None:
    saved = [save(driver, step) for step in range(1, 5)]
    last = save(driver, 5, final=True)
    assert done(project, owner, keep_checkpoints=1)["bytes"] == 0  # it has not ended
    end(driver.run, State.STOPPED)
    preview = done(project, owner, keep_checkpoints=2)
    assert (preview["bytes"], preview["files"]) == (400, 4)
    assert preview["runs"] == {
        driver.run.pk: {"checkpoint": {"count": 2, "bytes": 400, "files": 4}}
    }
    assert Checkpoint.objects.filter(removed_at=None).count() == 5
    assert not AuditEntry.objects.filter(action="storage.prune").exists()
    removed = done(project, owner, keep_checkpoints=2, preview=False)
    assert (removed["bytes"], removed["files"], removed["kept"]) == (400, 4, 0)
    left = set(Checkpoint.objects.filter(removed_at=None).values_list("pk", flat=True))
    assert left == {saved[2].pk, saved[3].pk, last.pk}
    assert AuditEntry.objects.filter(action="storage.prune").count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_files_of_a_removed_checkpoint_are_gone(
    project: Project, owner: User, driver: Driver
) -> None:
    first, second = save(driver, 1), save(driver, 2)
    end(driver.run)
    done(project, owner, keep_checkpoints=1, preview=False)
    assert not exists(driver.run, f"{first.path}/a") and exists(driver.run, f"{second.path}/a")


def test_it_keeps_what_a_run_was_started_from(
    project: Project, owner: User, driver: Driver, launch: Any
) -> None:
    old = save(driver, 1)
    save(driver, 2)
    end(driver.run)
    fork = launch(name="fork")
    Run.objects.filter(pk=fork.pk).update(checkpoint=old)
    assert done(project, owner, keep_checkpoints=1, preview=False)["files"] == 0
    old.refresh_from_db()
    assert old.removed_at is None


def test_it_keeps_what_came_to_be_referred_to_since_it_looked(
    project: Project, owner: User, driver: Driver, launch: Any
) -> None:
    old = save(driver, 1)
    save(driver, 2)
    name = shard(driver, "t1")
    end(driver.run, archived=True)
    wish = Wish(keep_checkpoints=1, archived_trajectories=True, preview=False)
    found = list(prune.candidates(project.pk, wish))
    assert [one.kind for one in found] == ["checkpoint", "trajectories"]
    fork = launch(name="fork")
    Run.objects.filter(pk=fork.pk).update(checkpoint=old)
    reviews.add_comment(Trajectory.objects.get(), owner, "look")
    assert [prune.remove(one, wish, project.pk, owner) for one in found] == [False, False]
    assert storage.has_blob(name)


def test_logs_of_the_pool_go_only_where_nothing_resumes(
    project: Project, owner: User, launch: Any
) -> None:
    succeeded, stopped = launch(name="a"), launch(name="b")
    for run, state in ((succeeded, State.SUCCEEDED), (stopped, State.STOPPED)):
        put(run, "pool/stage-1/0.log", b"x" * 70)
        put(run, "checkpoints/1/a", b"x")
        end(run, state)
    assert done(project, owner, pools=True)["kinds"] == {
        "pool": {"count": 1, "bytes": 70, "files": 1}
    }
    assert exists(succeeded, "pool/stage-1/0.log")
    done(project, owner, pools=True, preview=False)
    assert not exists(succeeded, "pool/stage-1/0.log") and exists(succeeded, "checkpoints/1/a")
    assert exists(stopped, "pool/stage-1/0.log")


def test_trajectories_of_archived_runs_go_but_not_those_that_people_refer_to(
    project: Project, owner: User, driver: Driver
) -> None:
    plain, spoken, queued = shard(driver, "t1", "t2"), shard(driver, "t3"), shard(driver, "t4")
    seen, seen_too = tokens(driver, "t1", "t2"), tokens(driver, "t3")
    reviews.add_comment(Trajectory.objects.get(pk="t3"), owner, "look")
    end(driver.run)
    assert done(project, owner, archived_trajectories=True, preview=False)["files"] == 0
    end(driver.run, archived=True)
    queue = Queue.objects.create(project=project, name="q", rubric={})
    QueueItem.objects.create(queue=queue, trajectory=Trajectory.objects.get(pk="t4"), position=0)
    done(project, owner, archived_trajectories=True, preview=False)
    held = [storage.has_blob(name) for name in (plain, spoken, queued, seen, seen_too)]
    assert held == [False, True, True, False, True]
    assert Trajectory.objects.filter(shard=plain).count() == 2  # lists still show them
    assert Upload.objects.filter(run=driver.run).count() == 3


@pytest.mark.parametrize("reference", ["dataset", "queue", "baseline"])
def test_trajectories_stay_of_a_run_that_is_referred_to(
    project: Project, owner: User, driver: Driver, reference: str
) -> None:
    name = shard(driver, "t1")
    end(driver.run, archived=True)
    if reference == "dataset":
        dataset = services.create_dataset(project, owner, "d", "tasks")
        row = b'{"prompt": "a", "answer": "b"}'
        services.add_dataset_version(
            dataset, owner, [row], source={"kind": "labels", "run": driver.run.pk}
        )
    elif reference == "queue":
        Queue.objects.create(project=project, run=driver.run, name="q", rubric={})
    else:
        driver.run.experiment.baseline = driver.run
        driver.run.experiment.save()
    assert done(project, owner, archived_trajectories=True, preview=False)["files"] == 0
    assert storage.has_blob(name)


def test_a_shard_that_another_run_has_too_stays_in_storage(
    project: Project, owner: User, driver: Driver, launch: Any
) -> None:
    name = shard(driver, "t1")
    other = start(launch(name="other"))
    blob = storage.read_blob(name)
    assert hashlib.sha256(blob).hexdigest() == name
    services.put_upload(other.run.pk, blob, name)
    end(driver.run, archived=True)
    assert done(project, owner, archived_trajectories=True, preview=False)["files"] == 1
    assert storage.has_blob(name)


def test_another_project_is_left_alone(project: Project, owner: User, driver: Driver) -> None:
    save(driver, 1)
    save(driver, 2)
    end(driver.run, archived=True)
    elsewhere = Project.objects.create(team=project.team, name="Elsewhere")
    Membership.objects.create(project=elsewhere, user=owner, role=Role.ADMIN)
    wish = {"keep_checkpoints": 1, "pools": True, "archived_trajectories": True}
    assert done(elsewhere, owner, **wish, preview=False)["files"] == 0


def test_it_refuses_a_wish_for_nothing_or_for_no_checkpoint(project: Project, owner: User) -> None:
    for wish, message in (
        ({}, "Choose what shall go"),
        ({"keep_checkpoints": 0}, "cannot be pruned"),
        ({"everything": True}, "cannot be pruned"),
    ):
        with pytest.raises(RefusedError, match=message):
            services.start_prune(project, owner, wish)


def test_what_it_shows_adds_up(project: Project, owner: User, driver: Driver) -> None:
    save(driver, 1)
    save(driver, 2, size=7)
    name = shard(driver, "t1")
    put(driver.run, "pool/stage-0/0.log", b"x" * 30)
    found = storage_use.use_of(project)
    assert found.checkpoint_bytes == 2 * 100 + 2 * 7
    assert found.upload_bytes == len(storage.read_blob(name))
    assert (found.runs[0].checkpoints, found.runs[0].keep, found.runs[0].files) == (2, 3, None)
    job = services.start_measure(project, owner)
    worker.work(job.pk)
    found = storage_use.use_of(project)
    assert found.measured_bytes == {"checkpoints": 214, "pool": 30}
    assert found.runs[0].pool_bytes == 30
    assert any(table.name == "experiments_run" for table in found.tables)


def test_it_names_the_largest_datasets_and_counts_them_all(project: Project) -> None:
    for n in range(5):
        dataset = Dataset.objects.create(project=project, name=f"{n}", kind="tasks")
        dataset.versions.create(number=1, blob="0" * 64, rows=1, size=10 * n)
    found = storage_use.use_of(project, shown=2)
    assert [one.name for one in found.datasets] == ["4", "3"]
    assert (found.dataset_count, found.dataset_bytes) == (5, 100)


def test_the_api_tells_and_prunes(api: Api, project: Project, driver: Driver, viewer: User) -> None:
    save(driver, 1)
    save(driver, 2)
    end(driver.run)
    place = f"projects/{project.pk}/storage"
    shown = api("GET", place).json()
    assert shown["checkpoint_bytes"] == 400 and shown["runs"][0]["run_id"] == driver.run.pk
    assert shown["measured_at"] is None and shown["policies"]
    answer = api("POST", f"{place}/prune", {"keep_checkpoints": 1})
    assert answer.status_code == 202 and answer.json()["spec"]["preview"] is True
    assert api("POST", f"{place}/measure").status_code == 202
    assert api("POST", f"{place}/prune", {"keep_checkpoints": 0}).status_code == 422
    assert Api(viewer)("POST", f"{place}/measure").status_code == 403


def test_its_pages_show_what_would_go_and_remove_it(
    page: Client, project: Project, driver: Driver, editor: User
) -> None:
    save(driver, 1)
    save(driver, 2)
    end(driver.run)
    text = page.get(f"/projects/{project.pk}/storage/").content.decode()
    assert driver.run.name in text and "Show what would go" in text and "400 B" in text
    form = {"checkpoints": "1", "keep": "1", "action": "preview"}
    started = page.post(f"/projects/{project.pk}/storage/prune", form)
    job = Job.objects.get()
    assert started["Location"] == f"/jobs/{job.pk}/"
    worker.work(job.pk)
    text = page.get(f"/prunes/{job.pk}/").content.decode()
    assert "200 B in 2 files would go" in text and 'value="remove"' in text
    page.post(f"/projects/{project.pk}/storage/prune", {**form, "action": "remove"})
    job = Job.objects.order_by("-created_at")[0]
    worker.work(job.pk)
    assert "200 B in 2 files were removed" in page.get(f"/prunes/{job.pk}/").content.decode()
    assert Checkpoint.objects.filter(removed_at=None).count() == 1
    wrong = page.post(f"/projects/{project.pk}/storage/prune", {**form, "keep": "few"})
    assert wrong["Location"] == f"/projects/{project.pk}/storage/"
    other = Client()
    other.force_login(editor)
    assert other.post(f"/projects/{project.pk}/storage/prune", form).status_code == 403


def test_the_page_asks_the_database_as_often_for_many_runs(
    page: Client, project: Project, launch: Any
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            assert page.get(f"/projects/{project.pk}/storage/").status_code == 200
        return len(found)

    Project.objects.update(max_running=100)
    save(start(launch()), 1)
    queries()
    few = queries()
    for _ in range(12):
        save(start(launch()), 1)
    assert queries() == few
