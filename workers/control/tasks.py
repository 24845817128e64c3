"""The tasks: submit, stop, reap, index, reconcile. Run twice, or late, they change nothing more."""

import logging
import secrets
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TypeVar

from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded
from django.utils import timezone

from webapp.accounts import webhooks
from webapp.accounts.models import Project
from webapp.accounts.sending import LONGEST_S, deliver
from webapp.experiments import services
from webapp.experiments.models import Attempt, Run, State
from webapp.experiments.states import due, newest_attempt
from webapp.pruning import prune
from webapp.reviews.services import index_texts
from webapp.sweeps.models import Sweep
from webapp.sweeps.services import step_sweep
from workers.control import ray_jobs

log = logging.getLogger(__name__)

T = TypeVar("T")

START_LIMIT = timedelta(minutes=10)  # from submission until the driver has redeemed its ticket
INDEX_S = 4.0  # in which trajectories are indexed at a time, so that other tasks get their turn
STOP_LIMIT = timedelta(seconds=90)  # for saving a checkpoint; then Ray ends the job


@shared_task(name="caravan.submit")
def submit(attempt_id: str) -> None:
    """Give a queued attempt to Ray, unless it is not its turn or somebody did already."""
    claim = services.claim(attempt_id)
    if claim is None:
        return
    # Remembered before Ray hears of it: a job that nobody knows would never be stopped. Its own
    # id each time: a job of an earlier try holds a ticket that no longer works, and ends itself.
    submission_id = f"{attempt_id}-{secrets.token_hex(3)}"
    services.submitted(attempt_id, submission_id)
    try:
        ray_jobs.submit(submission_id, attempt_id, claim.ticket)
    except ray_jobs.RayUnreachableError as error:
        services.requeue(attempt_id, f"waiting for Ray: {error}")
    except ValueError as error:
        services.fail_attempt(attempt_id, str(error))


@shared_task(name="caravan.stop")
def stop(run_id: str) -> None:
    """A driver reads the wish itself; one that has not started yet is ended by Ray."""
    attempt = newest_attempt(Run.objects.get(pk=run_id))
    if attempt.state != State.STOPPING or attempt.token_digest:
        return
    _end_by_ray(attempt, "stopped before its driver had started")


@shared_task(name="caravan.reap")
def reap() -> None:
    """Remove checkpoints that runs were not asked to keep, and what is kept for a while only."""
    if removed := services.prune_checkpoints():
        log.info("%d checkpoints were removed", removed)
    services.clear_dry_runs()
    services.remove_leftovers()
    services.remove_old_exports()
    prune()


@shared_task(name="caravan.index")
def index() -> None:
    """Make the text of trajectories that came in findable."""
    index_texts(INDEX_S)


@shared_task(name="caravan.remove")
def remove() -> None:
    """Remove the files of runs that were deleted; `reap` goes on where this was cut short."""
    while services.remove_leftovers():
        continue


@shared_task(name="caravan.deliver", soft_time_limit=LONGEST_S, time_limit=LONGEST_S + 10)
def deliver_webhook(delivery_id: str) -> None:
    """Send one event to one webhook, where that is due and nobody else does."""
    deliver(int(delivery_id))


@shared_task(name="caravan.sweep")
def sweep(sweep_id: str) -> None:
    """Bring a sweep up to date: one of its runs ended, or somebody wishes something of it."""
    step_sweep(sweep_id)


@shared_task(name="caravan.sweeps")
def sweeps() -> None:
    """Bring every sweep up to date; one that cannot be does not hold up the others."""
    _each(Sweep.objects.filter(ended_at=None).values_list("pk", flat=True), step_sweep)


@shared_task(name="caravan.reconcile")
def reconcile() -> None:
    """Compare what the database wishes, what ingest hears and what Ray says; mend the rest."""
    queued = Project.objects.filter(runs__state=State.QUEUED).distinct()
    for project_id in queued.values_list("pk", flat=True):
        _each(due(project_id), submit)
    _each(Attempt.objects.filter(state=State.STARTING, ended_at=None), _look_at_start)
    _each(services.silent_attempts(), _look_at_silence)
    overdue = Attempt.objects.filter(
        state=State.STOPPING, ended_at=None, run__stop_asked_at__lt=timezone.now() - STOP_LIMIT
    )
    _each(overdue.select_related("run"), _end_overdue)
    webhooks.send_due()
    services.judge_jobs()
    services.send_jobs()


def _each(found: Iterable[T], mend: Callable[[T], object]) -> None:
    """Mend one after the other; what cannot be mended now does not hold up the others."""
    for one in found:
        try:
            mend(one)
        except SoftTimeLimitExceeded:
            raise
        except Exception:
            log.exception("%s could not be brought up to date; it is tried again.", one)


def _end_overdue(attempt: Attempt) -> None:
    _end_by_ray(attempt, f"did not stop within {STOP_LIMIT.seconds} s and was ended")


def _look_at_start(attempt: Attempt) -> None:
    """A job that ended, or hangs, before its driver said anything."""
    if attempt.submitted_at is None:
        return
    waited = timezone.now() - attempt.submitted_at
    try:
        job = ray_jobs.status(attempt.ray_job_id)
    except ray_jobs.RayUnreachableError:
        return
    if job.status is None and waited > timedelta(seconds=30):
        services.requeue(attempt.pk, "Ray lost the job before it started")
    elif job.status is not None and not job.is_live:
        services.fail_attempt(attempt.pk, f"the driver ended before it started: {job.message}")
    elif waited > START_LIMIT:
        minutes = START_LIMIT.seconds // 60
        _end_by_ray(attempt, f"the driver did not start within {minutes} minutes: {job.message}")


def _look_at_silence(silent: services.Silent) -> None:
    if silent.is_external:
        # Nobody can ask its machine: it stays unreachable until it is heard of, or given up.
        if silent.state == State.STOPPING:
            services.mark_lost(silent, "silent since it was asked to stop")
        else:
            services.mark_unreachable(silent)
        return
    try:
        job = ray_jobs.status(silent.ray_job_id)
    except ray_jobs.RayUnreachableError:
        services.mark_unreachable(silent)
        return
    if job.is_live:
        services.mark_unreachable(silent)
    else:
        state = f"Ray says {job.status}" if job.status else "Ray does not know it any more"
        word = job.message or state
        services.mark_lost(silent, f"no heartbeat for {silent.silence_s:.0f} s; {word}")


def _end_by_ray(attempt: Attempt, reason: str) -> None:
    if attempt.run.is_external:
        services.fail_attempt(attempt.pk, f"{reason} here; its trainer may still run")
        return
    try:
        ray_jobs.stop(attempt.ray_job_id)
    except ray_jobs.RayUnreachableError as error:
        log.warning("%s could not be ended: %s", attempt.pk, error)
        return
    services.fail_attempt(attempt.pk, reason)
