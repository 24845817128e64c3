"""The task that does a job, in the worker of the queue `jobs`, with a heartbeat beside it."""

import logging
import threading

from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded
from django.db import Error, connection

from webapp.experiments import services
from webapp.experiments.jobs import CancelledError, Working, check_asker, work_of
from webapp.experiments.models import Job, State
from webapp.problems import RefusedError

log = logging.getLogger(__name__)

LONGEST_S = 12 * 3600


@shared_task(name="caravan.work", soft_time_limit=LONGEST_S, time_limit=LONGEST_S + 60)
def work(job_id: str) -> None:
    """Do a queued job, unless somebody does it, did it or stopped it already."""
    job = services.claim_job(job_id)
    if job is None:
        return
    ended = threading.Event()
    heart = threading.Thread(target=_beat, args=(job, ended), daemon=True)
    heart.start()
    try:
        _do(job)
    finally:
        ended.set()
        heart.join()


def _do(job: Job) -> None:
    """Ends the job whatever happens; what a user caused is told as it is."""
    working = Working(job)
    try:
        check_asker(job)
        result = work_of(job.kind)(working)
        working.write()
        services.end_job(job.pk, job.claim, State.SUCCEEDED, result=result)
    except CancelledError:
        services.end_job(job.pk, job.claim, State.STOPPED, "stopped as asked for")
    except RefusedError as error:
        services.end_job(job.pk, job.claim, State.FAILED, error.detail)
    except SoftTimeLimitExceeded:
        limit = f"it took longer than {LONGEST_S // 3600} h"
        services.end_job(job.pk, job.claim, State.FAILED, limit)
    except Exception as error:
        log.exception("job %s failed", job.pk)
        services.end_job(job.pk, job.claim, State.FAILED, f"{type(error).__name__}: {error}")


def _beat(job: Job, ended: threading.Event) -> None:
    """Heard of even while one step of its work takes long."""
    try:
        while not ended.wait(services.JOB_HEARTBEAT_S):
            try:
                if not services.beat_job(job.pk, job.claim):
                    return
            except Error as error:  # the database is away: it may be back for the next one
                log.warning("no heartbeat of job %s: %s", job.pk, error)
                connection.close()
    finally:
        connection.close()
