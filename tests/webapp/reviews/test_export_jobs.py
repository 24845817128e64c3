"""Exports that are too much to be sent at once: a job, its file, and how that goes again."""

import io
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api, downloaded
from webapp import storage
from webapp.accounts.models import Project, User
from webapp.experiments import services as experiments
from webapp.experiments.jobs import Working
from webapp.experiments.models import Job, Run, State
from webapp.problems import RefusedError
from webapp.reviews import export_job, exports, services
from webapp.reviews.queries import Filter
from webapp.reviews.services import exporting
from workers.control import jobs as worker

# What is streamed is read in another thread.
pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)


@pytest.fixture
def owned(as_user: Any, owner: User) -> Client:
    return as_user(owner)


@pytest.fixture
def many(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "MOST_SENT", 3)
    store([trajectory(name=f"t{i}", reward=float(i % 2)) for i in range(6)])


def folder(run: Run) -> Path:
    return Path(storage.run_folder(run.pk).removeprefix("file://")) / "exports"


def files(run: Run) -> list[Path]:
    return [path for path in folder(run).rglob("*") if path.is_file()]


def made(run: Run, user: User, format: str = "jsonl", **narrowing: Any) -> Job:
    job = services.start_export(run, user, Filter(**narrowing), format)  # type: ignore[arg-type]
    worker.work(job.pk)
    job.refresh_from_db()
    return job


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_its_file_is_what_would_have_been_sent(
    many: None, run: Run, owner: User, owned: Client, monkeypatch: Any, format: str
) -> None:
    job = made(run, owner, format, min_reward=1.0)
    assert job.state == "succeeded" and (job.done, job.total) == (3, 3), job.state_reason
    answer = owned.get(f"/api/v1/jobs/{job.pk}/file")
    data = downloaded(answer)
    assert int(answer["Content-Length"]) == len(data) == job.result["file"]["bytes"]
    assert f"{run.pk}-trajectories.{format}" in answer["Content-Disposition"]
    monkeypatch.setattr(exporting, "MOST_SENT", 100)
    sent = owned.get(f"/api/v1/runs/{run.pk}/trajectories/export?format={format}&min_reward=1.0")
    if format == "jsonl":
        assert data == downloaded(sent) and len(data.splitlines()) == 3
    else:
        both = [pyarrow.parquet.read_table(io.BytesIO(one)) for one in (data, downloaded(sent))]
        assert both[0].equals(both[1])
    assert (job.result["trajectories"], job.result["unreadable"]) == (3, 0)


def test_too_much_is_not_sent_and_says_what_to_do(many: None, run: Run, owned: Client) -> None:
    path = f"/api/v1/runs/{run.pk}"
    answer = owned.get(f"{path}/trajectories/export")
    assert answer.status_code == 409
    assert "6 trajectories" in answer.json()["detail"] and "job" in answer.json()["detail"]
    assert owned.get(f"{path}/exports/extent").json()["needs_job"] is True
    narrow = owned.get(f"{path}/exports/extent?min_reward=1.0").json()
    assert (narrow["trajectories"], narrow["needs_job"]) == (3, False)
    assert narrow["bytes"] == sum(row.length for row in run.trajectories.filter(reward=1.0))


def test_much_in_storage_needs_a_job_too(store: Any, run: Run, monkeypatch: Any) -> None:
    (row,) = store([trajectory(name="long")])
    monkeypatch.setattr(exporting, "MOST_SENT_BYTES", row.length - 1)
    with pytest.raises(RefusedError, match="by a job"):
        exporting.check_extent(run, Filter())


def test_the_page_sends_what_is_little_and_asks_before_it_makes_much(
    many: None, run: Run, owned: Client, viewer: User, as_user: Any
) -> None:
    page = reverse("run_export", args=[run.pk])
    little = owned.get(f"{page}?format=parquet&min_reward=1.0&success=true")
    assert little.status_code == 302 and little["Location"] == (
        f"/api/v1/runs/{run.pk}/trajectories/export?success=true&min_reward=1.0&format=parquet"
    )
    much = owned.get(
        f"{page}?format=jsonl&purpose=train&failed_calls=false&attempt=1"
    ).content.decode()
    head = much[much.index("page-head") : much.index("</main>")]
    assert "Export 6 trajectories" in head
    assert "purpose train" in re.sub("<[^>]+>", "", head)
    start = reverse("run_export_start", args=[run.pk])
    action = f"{start}?purpose=train&amp;attempt=1&amp;failed_calls=false&amp;format=jsonl"
    assert f'action="{action}"' in much
    assert not Job.objects.exists()
    watched = as_user(viewer).get(f"{page}?format=jsonl")
    assert start not in watched.content.decode() and "An editor" in watched.content.decode()
    assert as_user(viewer).post(f"{start}?format=jsonl").status_code == 403
    answer = owned.post(f"{start}?purpose=train&format=jsonl")
    job = Job.objects.get()
    assert answer["Location"] == reverse("job", args=[job.pk])
    worker.work(job.pk)
    shown = owned.get(answer["Location"]).content.decode()
    assert f"/api/v1/jobs/{job.pk}/file" in shown and "Download" in shown
    for wrong in ("format=csv", "format=jsonl&attempt=0", "format=jsonl&sql=1"):
        assert owned.get(f"{page}?{wrong}").status_code == 422


def test_asked_for_twice_it_is_made_once(many: None, run: Run, api: Api, owner: User) -> None:
    path, body = f"runs/{run.pk}/exports", {"filter": {"min_reward": 1.0}}
    first, second = [api("POST", path, body).json()["id"] for _ in range(2)]
    assert first == second
    assert api("POST", path, {"format": "parquet"}).json()["id"] != first
    worker.work(first)
    assert api("POST", path, body).json()["id"] != first
    assert api("POST", path, {"filter": {"sql": 1}}).status_code == 422
    empty = api("POST", path, {"filter": {"min_reward": 9.0}})
    assert empty.status_code == 422 and "nothing to export" in empty.json()["detail"]


def test_it_is_stopped_in_the_middle_and_leaves_nothing(
    many: None, run: Run, owner: User, owned: Client, monkeypatch: Any
) -> None:
    job = services.start_export(run, owner, Filter(), "jsonl")
    original = exports.pieces_of

    def stopped_on_the_way(rows: Any, format: str, told: Any) -> Any:
        for number, piece in enumerate(original(rows, format, told)):
            if number == 3:
                experiments.cancel_job(job.pk, owner)
            yield piece

    monkeypatch.setattr(exports, "pieces_of", stopped_on_the_way)
    monkeypatch.setattr(export_job.Working, "progress", progress_at_once)
    worker.work(job.pk)
    job.refresh_from_db()
    assert job.state == "stopped" and files(run)
    assert owned.get(f"/api/v1/jobs/{job.pk}/file").status_code == 410
    experiments.remove_old_exports()
    assert not files(run) and experiments.remove_old_exports() == 0


def progress_at_once(self: Working, done: int, total: int | None = None, text: str = "") -> None:
    self._state = {"done": done, "total": total, "text": text}
    self.write()


def test_it_begins_again_where_its_process_was_lost(
    many: None, run: Run, owner: User, owned: Client
) -> None:
    job = services.start_export(run, owner, Filter(), "jsonl")
    lost = experiments.claim_job(job.pk)
    assert lost is not None
    half = folder(run) / job.pk / lost.claim
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    assert owned.get(f"/api/v1/jobs/{job.pk}/file").status_code == 409
    experiments.hand_back_jobs()
    worker.work(job.pk)
    data = downloaded(owned.get(f"/api/v1/jobs/{job.pk}/file"))
    assert len(data.splitlines()) == 6


def test_its_file_goes_after_a_week_and_can_be_made_again(
    many: None, run: Run, owner: User, owned: Client
) -> None:
    job = made(run, owner)
    experiments.remove_old_exports()
    assert len(files(run)) == 1
    Job.objects.filter(pk=job.pk).update(ended_at=timezone.now() - 8 * DAY)
    experiments.remove_old_exports()
    assert not files(run)
    assert owned.get(f"/api/v1/jobs/{job.pk}/file").status_code == 410
    page = owned.get(reverse("job", args=[job.pk])).content.decode()
    assert "was removed since" in page and "Start again" in page
    again = owned.post(reverse("job_again", args=[job.pk]))
    worker.work(again["Location"].split("/")[-2])
    assert len(files(run)) == 1


def test_the_storage_page_counts_and_prunes_it(
    many: None, run: Run, owner: User, owned: Client, project: Project
) -> None:
    job = made(run, owner)
    use = owned.get(f"/api/v1/projects/{project.pk}/storage").json()
    assert use["export_bytes"] == job.result["file"]["bytes"] == files(run)[0].stat().st_size
    wish = {"exports": "1", "action": "preview"}
    for action, left in (("preview", 1), ("remove", 0)):
        answer = owned.post(reverse("storage_prune", args=[project.pk]), wish | {"action": action})
        worker.work(answer["Location"].split("/")[-2])
        assert len(files(run)) == left
    pruned = Job.objects.get(pk=answer["Location"].split("/")[-2])
    assert pruned.result["kinds"]["export"]["bytes"] == use["export_bytes"]
    assert owned.get(reverse("pruned", args=[pruned.pk])).status_code == 200
    assert owned.get(f"/api/v1/projects/{project.pk}/storage").json()["export_bytes"] == 0


def test_a_run_that_is_deleted_meanwhile_takes_it_along(
    many: None, run: Run, owner: User, monkeypatch: Any
) -> None:
    original = exports.pieces_of

    def deleted_on_the_way(rows: Any, format: str, told: Any) -> Any:
        yield from original(rows, format, told)
        Run.objects.filter(pk=run.pk).delete()

    job = services.start_export(run, owner, Filter(), "jsonl")
    monkeypatch.setattr(exports, "pieces_of", deleted_on_the_way)
    worker.work(job.pk)
    job.refresh_from_db()
    assert (job.state, job.state_reason) == (State.FAILED, export_job.GONE)
    assert not files(run)
    experiments.remove_old_exports()


def test_what_cannot_be_read_is_counted(many: None, run: Run, owner: User, store: Any) -> None:
    (gone,) = store([trajectory(name="gone", prompt="gone")])
    storage.remove_blob(gone.shard)
    for format in ("jsonl", "parquet"):
        job = made(run, owner, format)
        assert (job.result["trajectories"], job.result["unreadable"]) == (6, 1)
    lines = [json.loads(line) for line in files_of_jsonl(run)]
    assert sum("problem" in line for line in lines) == 1


def files_of_jsonl(run: Run) -> list[bytes]:
    return next(p for p in files(run) if p.read_bytes()[:1] == b"{").read_bytes().splitlines()


def test_it_leaves_room_on_the_disk(many: None, run: Run, owner: User, monkeypatch: Any) -> None:
    free = storage.free_bytes()
    assert free is not None and free > 0
    monkeypatch.setattr(storage, "free_bytes", lambda: 2**30)
    job = made(run, owner)
    assert job.state == "failed" and "1.0 GiB left" in job.state_reason
    experiments.remove_old_exports()
    assert not files(run)


def test_other_jobs_have_no_file(project: Project, owner: User, owned: Client) -> None:
    job = experiments.start_job(project, owner, "storage", {}, title="x")
    answer = owned.get(f"/api/v1/jobs/{job.pk}/file")
    assert answer.status_code == 404 and "make no file" in answer.json()["detail"]
