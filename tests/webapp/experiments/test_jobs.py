"""Jobs: claimed once, heard of, stopped, lost, sent again; over REST and on their pages."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.webapp.support import Api
from webapp import queue
from webapp.accounts.models import AuditEntry, Membership, Project, Role, User
from webapp.experiments import services
from webapp.experiments.jobs import KINDS, LOG_CHARS, CancelledError, Kind, Working
from webapp.experiments.models import Job, State
from webapp.monitoring.models import IngestPulse
from webapp.problems import RefusedError
from webapp.pruning import prune
from workers.control import jobs as worker
from workers.control import tasks

pytestmark = pytest.mark.django_db
CALLED: list[str] = []


def count(working: Working) -> dict[str, Any]:
    """A kind for tests: counts, and does what its spec says on the way."""
    CALLED.append(working.job.pk)
    for done in range(3):
        if working.spec.get("cancelled_at") == done:
            assert working.job.created_by is not None
            services.cancel_job(working.job.pk, working.job.created_by)
        if working.spec.get("given_up_at") == done:
            Job.objects.filter(pk=working.job.pk).update(claim="", state=State.LOST)
        working.log(f"step {done}")
        working._next = 0.0
        working.progress(done, 3, f"at {done}\0")
    if refused := working.spec.get("refused"):
        raise RefusedError(refused)
    if working.spec.get("broken"):
        raise ZeroDivisionError("division by zero")
    return {"counted": 3}


@pytest.fixture(autouse=True)
def kind() -> Iterator[None]:
    CALLED.clear()
    KINDS["count"] = Kind("Counting", f"{__name__}.count")
    yield
    del KINDS["count"]


@pytest.fixture
def start(project: Project, owner: User) -> Any:
    return lambda **spec: services.start_job(project, owner, "count", spec, title="Count <b>")


def heard(job: Job, ago: timedelta, up: timedelta = timedelta(hours=1)) -> None:
    now = timezone.now()
    Job.objects.filter(pk=job.pk).update(heartbeat_at=now - ago)
    IngestPulse.objects.update_or_create(id=1, defaults={"up_since": now - up, "pulse_at": now})


def test_it_does_a_job_and_keeps_what_came_of_it(start: Any) -> None:
    job = start()
    worker.work(job.pk)
    job.refresh_from_db()
    assert (job.state, job.result, job.done, job.total) == ("succeeded", {"counted": 3}, 2, 3)
    said = [line.split(" ", 1)[1] for line in job.log.splitlines()]
    assert said == ["step 0", "step 1", "step 2"]
    assert job.started_at is not None and job.ended_at is not None


def test_it_does_nothing_for_somebody_who_lost_the_role_meanwhile(
    start: Any, project: Project, owner: User
) -> None:
    job, again = start(), start()
    Membership.objects.filter(project=project, user=owner).update(role=Role.VIEWER)
    worker.work(job.pk)
    Membership.objects.filter(project=project, user=owner).delete()
    worker.work(again.pk)
    for one in (job, again):
        one.refresh_from_db()
        assert one.state == "failed" and "needs the role editor" in one.state_reason
    assert CALLED == []


def test_a_message_that_comes_twice_changes_nothing(start: Any) -> None:
    job = start()
    worker.work(job.pk)
    before = Job.objects.values().get(pk=job.pk)
    worker.work(job.pk)
    assert Job.objects.values().get(pk=job.pk) == before
    assert [job.pk] == CALLED
    worker.work("job_nothing")


def test_only_one_of_two_processes_gets_it(start: Any) -> None:
    job = start()
    assert services.claim_job(job.pk) is not None
    assert services.claim_job(job.pk) is None


def test_it_is_sent_to_the_queue_of_jobs_once_it_is_stored(
    start: Any, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(queue.app, "send_task", lambda name, args, **_: sent.append((name, args)))
    with django_capture_on_commit_callbacks(execute=True):
        job = start()
        assert sent == []
    assert sent == [("caravan.work", (job.pk,))]
    route = queue.app.amqp.router.route({}, "caravan.work")
    assert route["queue"].name == "jobs"
    assert queue.app.amqp.router.route({}, "caravan.submit")["queue"].name != "jobs"


def test_it_is_stopped_at_its_next_progress(start: Any) -> None:
    job = start(cancelled_at=1)
    worker.work(job.pk)
    job.refresh_from_db()
    assert (job.state, job.result, job.done) == ("stopped", None, 1)


def test_a_queued_job_is_stopped_at_once_and_never_worked_on(start: Any, owner: User) -> None:
    job = start()
    services.cancel_job(job.pk, owner)
    worker.work(job.pk)
    job.refresh_from_db()
    assert job.state == "stopped" and CALLED == []
    assert AuditEntry.objects.filter(action="job.cancel", target=job.pk).count() == 1
    with pytest.raises(RefusedError, match="is stopped already"):
        services.cancel_job(job.pk, owner)


def test_what_was_given_up_writes_no_more(start: Any) -> None:
    job = start(given_up_at=1)
    worker.work(job.pk)
    job.refresh_from_db()
    assert (job.state, job.result, job.done) == ("lost", None, 0)


def test_it_says_why_it_failed(start: Any) -> None:
    refused, broken = start(refused="Choose a run first."), start(broken=True)
    worker.work(refused.pk)
    worker.work(broken.pk)
    refused.refresh_from_db()
    broken.refresh_from_db()
    assert (refused.state, refused.state_reason) == ("failed", "Choose a run first.")
    assert (broken.state, broken.state_reason) == ("failed", "ZeroDivisionError: division by zero")


def test_a_silent_job_is_lost_and_one_that_is_heard_of_is_not(start: Any) -> None:
    silent, alive = start(), start()
    for job in (silent, alive):
        services.claim_job(job.pk)
    heard(alive, timedelta(seconds=5))
    heard(silent, timedelta(seconds=60))
    tasks.reconcile()
    silent.refresh_from_db()
    alive.refresh_from_db()
    assert (silent.state, alive.state) == ("lost", "running")
    assert "start it again" in silent.state_reason


def test_an_outage_counts_against_no_job(start: Any) -> None:
    job = start()
    services.claim_job(job.pk)
    heard(job, timedelta(seconds=60), up=timedelta(seconds=10))
    assert services.judge_jobs() == 0
    IngestPulse.objects.update(pulse_at=timezone.now() - timedelta(minutes=1))
    assert services.judge_jobs() == 0


def test_what_does_not_stop_is_given_up(start: Any, owner: User) -> None:
    job = start()
    services.claim_job(job.pk)
    services.cancel_job(job.pk, owner)
    heard(job, timedelta())
    assert services.judge_jobs() == 0
    Job.objects.update(stop_asked_at=timezone.now() - timedelta(minutes=5))
    assert services.judge_jobs() == 1
    job.refresh_from_db()
    assert job.state == "stopped"


def test_queued_jobs_are_sent_again_when_the_queue_was_emptied(start: Any) -> None:
    jobs = [start() for _ in range(4)]
    assert services.send_jobs() == []
    Job.objects.update(sent_at=timezone.now() - timedelta(minutes=5))
    assert services.send_jobs() == [jobs[0].pk, jobs[1].pk]  # as many as are worked on at once
    assert services.send_jobs() == []
    for job in jobs[:2]:
        worker.work(job.pk)
    assert services.send_jobs() == [jobs[2].pk, jobs[3].pk]


def test_jobs_of_a_stopped_caravan_begin_again_with_its_next_start(start: Any, owner: User) -> None:
    running, stopping, waiting = start(), start(), start()
    claimed = services.claim_job(running.pk)
    services.claim_job(stopping.pk)
    services.cancel_job(stopping.pk, owner)
    call_command("interrupt_runs", "--wait", "0")
    for job in (running, stopping, waiting):
        job.refresh_from_db()
    assert (running.state, stopping.state, waiting.state) == ("queued", "stopped", "queued")
    assert claimed is not None
    with pytest.raises(CancelledError):
        Working(claimed).write()
    before = running.sent_at
    call_command("resume_interrupted")
    running.refresh_from_db()
    assert running.sent_at > before
    worker.work(running.pk)
    running.refresh_from_db()
    assert running.state == "succeeded"


def test_progress_is_written_now_and_then_and_logs_have_an_end(start: Any) -> None:
    job = services.claim_job(start().pk)
    assert job is not None
    working = Working(job, every_s=3600)
    with CaptureQueriesContext(connection) as queries:
        for done in range(1000):
            working.progress(done, 1000)
    assert len(queries) <= 4
    for _ in range(3):
        working.log("x" * LOG_CHARS)
    working.write()
    job.refresh_from_db()
    assert job.done == 999
    assert job.log.endswith("… what follows is not kept\n") and len(job.log) < LOG_CHARS


def test_time_left_follows_the_pace_so_far(start: Any) -> None:
    job = start()
    assert job.left_s is None
    now = timezone.now()
    Job.objects.update(state="running", started_at=now - timedelta(seconds=30), done=25, total=100)
    job.refresh_from_db()
    assert job.left_s == pytest.approx(90, abs=2)
    Job.objects.update(total=None)
    job.refresh_from_db()
    assert job.left_s is None


def test_the_api_lists_shows_and_stops_them(api: Api, start: Any) -> None:
    first, second = start(), start()
    worker.work(first.pk)
    page = api("GET", "jobs?limit=1").json()
    assert [one["id"] for one in page["items"]] == [second.pk]
    rest = api("GET", f"jobs?limit=1&cursor={page['next_cursor']}").json()
    assert ([one["id"] for one in rest["items"]], rest["next_cursor"]) == ([first.pk], None)
    assert "result" not in rest["items"][0]
    active = api("GET", "jobs?state=active").json()["items"]
    assert [one["id"] for one in active] == [second.pk]
    assert api("GET", "jobs?state=idle").status_code == 422
    assert api("GET", "jobs?kind=nothing").json()["errors"][0]["path"] == "kind"
    shown = api("GET", f"jobs/{first.pk}").json()
    assert shown["result"] == {"counted": 3} and "step 2" in shown["log"]
    assert api("POST", f"jobs/{second.pk}/cancel").json()["state"] == "stopped"
    assert api("POST", f"jobs/{second.pk}/cancel").status_code == 409


def test_its_pages_escape_titles_and_show_progress(page: Client, start: Any, viewer: User) -> None:
    job = start()
    services.claim_job(job.pk)
    Job.objects.update(done=1, total=4, text="<script>")
    text = page.get(f"/jobs/{job.pk}/").content.decode()
    assert "Count &lt;b&gt;" in text and "&lt;script&gt;" in text
    assert 'hx-trigger="every 1s"' in text and 'value="1" max="4"' in text
    assert page.post(f"/jobs/{job.pk}/cancel").status_code == 302
    job.refresh_from_db()
    assert job.state == "stopping"
    Job.objects.update(state="failed", state_reason="why", ended_at=timezone.now())
    text = page.get(f"/jobs/{job.pk}/", headers={"HX-Request": "true"}).content.decode()
    assert "hx-trigger" not in text and "why" in text and "<html" not in text
    watching = Client()
    watching.force_login(viewer)
    assert watching.post(f"/jobs/{job.pk}/cancel").status_code == 403


def test_the_list_asks_the_database_as_often_for_many_jobs(
    page: Client, project: Project, start: Any
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            assert page.get(f"/projects/{project.pk}/jobs/").status_code == 200
        return len(found)

    for _ in range(3):
        start()
    queries()
    few = queries()
    for _ in range(40):
        start()
    assert queries() == few


def test_what_looked_at_storage_long_ago_goes_and_backtests_stay(
    project: Project, owner: User
) -> None:
    old = timezone.now() - timedelta(days=91)
    for kind, ended in (("storage", old), ("prune", old), ("backtest", old), ("prune", None)):
        job = services.start_job(project, owner, kind, {}, title=kind)
        Job.objects.filter(pk=job.pk).update(ended_at=ended)
    prune()
    assert sorted(Job.objects.values_list("kind", flat=True)) == ["backtest", "prune"]


def test_what_ended_badly_is_started_again_by_who_may_start_it(
    api: Api, page: Client, start: Any, editor: User, project: Project, owner: User
) -> None:
    job = start(broken=True)
    assert api("POST", f"jobs/{job.pk}/again").status_code == 409  # it has not ended
    worker.work(job.pk)
    assert "Start again" in page.get(f"/jobs/{job.pk}/").content.decode()
    again = api("POST", f"jobs/{job.pk}/again")
    assert again.status_code == 202 and again.json()["id"] != job.pk
    assert again.json()["spec"] == {"broken": True}
    answer = page.post(f"/jobs/{job.pk}/again")
    assert answer["Location"] != f"/jobs/{job.pk}/" and Job.objects.count() == 3
    pruning = services.start_prune(project, owner, {"pools": True, "preview": False})
    services.cancel_job(pruning.pk, owner)
    assert Api(editor)("POST", f"jobs/{pruning.pk}/again").status_code == 403
    client = Client()
    client.force_login(editor)
    assert client.post(f"/jobs/{pruning.pk}/again").status_code == 403
    assert "Start again" not in client.get(f"/jobs/{pruning.pk}/").content.decode()
    assert api("POST", f"jobs/{pruning.pk}/again").status_code == 202
