"""Submission, stopping and reconciliation against the database, with Ray's answers played."""

from datetime import timedelta

import pytest
from django.utils import timezone

from webapp.accounts.models import Project
from webapp.accounts.services import ensure_admin
from webapp.experiments import services
from webapp.experiments.models import Attempt, Run, State
from webapp.monitoring.models import IngestPulse
from workers.control import ray_jobs, tasks

pytestmark = pytest.mark.django_db


class Ray:
    """What Ray's job API would hold. `down`: it does not answer."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.tickets: dict[str, str] = {}
        self.down = False
        self.refuses = False

    def submit(self, submission_id: str, attempt_id: str, ticket: str) -> None:
        self._answer()
        if self.refuses:
            raise ValueError("Ray refused the job: no such thing")
        self.jobs[submission_id] = "PENDING"
        self.tickets[attempt_id] = ticket

    def status(self, submission_id: str) -> ray_jobs.Job:
        self._answer()
        known = self.jobs.get(submission_id)
        return ray_jobs.Job(known, "what Ray says" if known else "")

    def stop(self, submission_id: str) -> None:
        self._answer()
        self.jobs[submission_id] = "STOPPED"

    def _answer(self) -> None:
        if self.down:
            raise ray_jobs.RayUnreachableError("Ray's job API does not answer: refused")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    ray = Ray()
    for name in ("submit", "status", "stop"):
        monkeypatch.setattr(ray_jobs, name, getattr(ray, name))
    return ray


@pytest.fixture
def run() -> Run:
    return _launch()


def _launch() -> Run:
    admin = ensure_admin("ada@example.org")
    project = Project.objects.get(memberships__user=admin)
    spec = services.check_spec({"name": "x", "stages": [{"kind": "synthesise"}]})
    return services.launch_run(project, admin, spec)


def _attempt(run: Run) -> Attempt:
    return run.attempts.order_by("-number")[0]


def _start(run: Run, ray: Ray, heard: timedelta = timedelta()) -> Attempt:
    """Submit the run and let its driver redeem the ticket, last heard of `heard` ago."""
    attempt = _attempt(run)
    tasks.submit(attempt.pk)
    services.redeem(attempt.pk, ray.tickets[attempt.pk])
    attempt.refresh_from_db()
    ray.jobs[attempt.ray_job_id] = "RUNNING"
    now = timezone.now()
    Attempt.objects.filter(pk=attempt.pk).update(heartbeat_at=now - heard)
    IngestPulse.objects.update_or_create(
        id=1, defaults={"up_since": now - timedelta(hours=1), "pulse_at": now}
    )
    return attempt


def _state(run: Run) -> State:
    run.refresh_from_db()
    assert _attempt(run).state == run.state
    return State(run.state)


def test_it_submits_an_attempt_once(run: Run, ray: Ray) -> None:
    tasks.submit(_attempt(run).pk)
    tasks.submit(_attempt(run).pk)
    assert len(ray.jobs) == 1
    assert _state(run) == State.STARTING


def test_it_ignores_an_attempt_that_does_not_exist(ray: Ray) -> None:
    tasks.submit("att_nothing")
    assert not ray.jobs


def test_it_waits_for_its_turn(run: Run, ray: Ray) -> None:
    second = _launch()
    _start(run, ray)
    tasks.submit(_attempt(second).pk)
    assert _state(second) == State.QUEUED
    services.fail_attempt(_attempt(run).pk, "over")
    tasks.reconcile()
    assert _state(second) == State.STARTING


def test_it_submits_again_when_ray_is_back(run: Run, ray: Ray) -> None:
    ray.down = True
    tasks.submit(_attempt(run).pk)
    assert _state(run) == State.QUEUED
    assert "Ray" in run.state_reason
    ray.down = False
    tasks.reconcile()
    assert _state(run) == State.STARTING


def test_it_fails_a_run_that_ray_refuses(run: Run, ray: Ray) -> None:
    ray.refuses = True
    tasks.submit(_attempt(run).pk)
    assert _state(run) == State.FAILED
    assert "refused" in run.state_reason


def test_it_fails_a_driver_that_ends_before_it_starts(run: Run, ray: Ray) -> None:
    tasks.submit(_attempt(run).pk)
    ray.jobs[_attempt(run).ray_job_id] = "FAILED"
    tasks.reconcile()
    assert _state(run) == State.FAILED
    assert "what Ray says" in run.state_reason


def test_it_ends_a_driver_that_hangs_before_it_starts(run: Run, ray: Ray) -> None:
    tasks.submit(_attempt(run).pk)
    long_ago = timezone.now() - tasks.START_LIMIT - timedelta(seconds=1)
    Attempt.objects.update(submitted_at=long_ago)
    tasks.reconcile()
    assert _state(run) == State.FAILED
    assert ray.jobs[_attempt(run).ray_job_id] == "STOPPED"


def test_it_leaves_a_run_alone_that_is_heard_of(run: Run, ray: Ray) -> None:
    _start(run, ray)
    tasks.reconcile()
    assert _state(run) == State.RUNNING


@pytest.mark.parametrize("status", ["FAILED", "STOPPED", "SUCCEEDED", None])
def test_it_loses_a_silent_run_only_on_rays_word(run: Run, ray: Ray, status: str | None) -> None:
    attempt = _start(run, ray, heard=timedelta(seconds=15))
    ray.jobs[attempt.ray_job_id] = status  # type: ignore[assignment]
    tasks.reconcile()
    assert _state(run) == State.LOST
    assert ("what Ray says" if status else "does not know it any more") in run.state_reason


def test_it_calls_a_silent_run_unreachable_while_ray_says_it_runs(run: Run, ray: Ray) -> None:
    _start(run, ray, heard=timedelta(seconds=15))
    tasks.reconcile()
    assert _state(run) == State.UNREACHABLE


def test_it_calls_a_silent_run_unreachable_while_ray_is_silent_too(run: Run, ray: Ray) -> None:
    _start(run, ray, heard=timedelta(seconds=15))
    ray.down = True
    tasks.reconcile()
    assert _state(run) == State.UNREACHABLE


def test_an_outage_of_ingest_counts_against_nobody(run: Run, ray: Ray) -> None:
    attempt = _start(run, ray, heard=timedelta(minutes=5))
    ray.jobs[attempt.ray_job_id] = "FAILED"
    IngestPulse.objects.update(up_since=timezone.now())
    tasks.reconcile()
    assert _state(run) == State.RUNNING


def test_it_stops_a_run_that_has_not_started(run: Run, ray: Ray) -> None:
    tasks.submit(_attempt(run).pk)
    services.stop(run.pk, ensure_admin("ada@example.org"))
    tasks.stop(run.pk)
    assert _state(run) == State.STOPPED
    assert ray.jobs[_attempt(run).ray_job_id] == "STOPPED"


def test_it_leaves_a_stopping_driver_time_for_its_checkpoint(run: Run, ray: Ray) -> None:
    _start(run, ray)
    services.stop(run.pk, ensure_admin("ada@example.org"))
    tasks.stop(run.pk)
    tasks.reconcile()
    assert _state(run) == State.STOPPING


def test_it_ends_a_driver_that_does_not_stop(run: Run, ray: Ray) -> None:
    attempt = _start(run, ray)
    services.stop(run.pk, ensure_admin("ada@example.org"))
    Run.objects.update(stop_asked_at=timezone.now() - tasks.STOP_LIMIT - timedelta(seconds=1))
    tasks.reconcile()
    assert _state(run) == State.STOPPED
    assert ray.jobs[attempt.ray_job_id] == "STOPPED"


def test_it_takes_up_an_attempt_whose_submission_was_cut_short(run: Run, ray: Ray) -> None:
    """A worker killed between the claim and the call leaves an attempt that has no Ray job."""
    assert services.claim(_attempt(run).pk)
    Attempt.objects.update(submitted_at=timezone.now() - timedelta(minutes=1))
    tasks.reconcile()
    assert _state(run) == State.QUEUED
    tasks.reconcile()
    assert _state(run) == State.STARTING
    assert ray.jobs == {_attempt(run).ray_job_id: "PENDING"}


def test_one_attempt_that_cannot_be_looked_at_holds_up_no_other(
    run: Run, ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    Project.objects.update(max_running=2)
    started = [_start(one, ray, heard=timedelta(minutes=1)) for one in (run, _launch())]
    broken, silent = sorted(started, key=lambda attempt: attempt.pk)  # in which they are looked at
    ray.jobs[silent.ray_job_id] = "FAILED"
    status = ray.status

    def of_another_form(submission_id: str) -> ray_jobs.Job:
        if submission_id == broken.ray_job_id:
            raise TypeError("Ray answers a list")
        return status(submission_id)

    monkeypatch.setattr(ray_jobs, "status", of_another_form)
    tasks.reconcile()
    assert (_state(broken.run), _state(silent.run)) == (State.RUNNING, State.LOST)
