"""The life of a job: started, claimed by one process, heard of, ended.

Whoever works on a job holds its claim; every write of a process compares it, so that one which was
given up, or which a repeated message woke, changes nothing.
"""

import secrets
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Concat
from django.utils import timezone

from webapp import queue
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import Job, Run, State
from webapp.experiments.services.judging import PULSE_LATE
from webapp.monitoring.models import IngestPulse
from webapp.plain_text import storable, storable_json
from webapp.problems import conflict

JOB_HEARTBEAT_S = 5
SILENT_AFTER = timedelta(seconds=30)
SENT_AGAIN_AFTER = timedelta(seconds=60)
AT_ONCE = 2  # as many as the process of jobs works on
STOP_LIMIT = timedelta(seconds=90)  # from a wish to stop until the job is given up
HELD = (State.RUNNING, State.STOPPING)


@transaction.atomic
def start_job(
    project: Project, user: User, kind: str, spec: dict[str, Any], *, title: str, subject: str = ""
) -> Job:
    """Queue a job. `kind` is one of `webapp.experiments.jobs.KINDS`; `subject` finds it again."""
    job = Job.objects.create(
        project=project,
        kind=kind,
        subject=subject,
        title=title[:200],
        spec=spec,
        created_by=user,
    )
    record("job.start", job.pk, user=user, project=project, kind=kind)
    queue.send("caravan.work", job.pk)
    return job


@transaction.atomic
def start_once(run: Run, user: User, kind: str, spec: dict[str, Any], *, title: str) -> Job:
    """Queue a job about a run; the same one that is under way is given instead of a second."""
    Run.objects.select_for_update(no_key=True).get(pk=run.pk)  # one at a time
    under_way = Job.objects.filter(
        project=run.project_id, kind=kind, subject=run.pk, ended_at=None, spec=spec
    ).exclude(state=State.STOPPING)
    if (found := under_way.first()) is not None:
        return found
    return start_job(run.project, user, kind, spec, title=title, subject=run.pk)


@transaction.atomic
def repeat_job(job: Job, user: User) -> Job:
    """Queue the same work again, as a new job. Raises RefusedError where it has not ended."""
    if job.ended_at is None:
        raise conflict(f"This job is {job.state}: it has not ended.")
    return start_job(job.project, user, job.kind, job.spec, title=job.title, subject=job.subject)


@transaction.atomic
def cancel_job(job_id: str, user: User) -> Job:
    """End a queued job at once, ask a running one to end. Asking twice changes nothing."""
    job = Job.objects.select_for_update(no_key=True, of=("self",)).get(pk=job_id)
    if job.ended_at is not None:
        raise conflict(f"This job is {job.state} already.")
    if job.state == State.QUEUED:
        job.state, job.ended_at = State.STOPPED, timezone.now()
        job.state_reason = f"stopped by {user} before it started"
    elif job.state == State.RUNNING:
        job.state, job.state_reason = State.STOPPING, f"stop asked for by {user}"
        job.stop_asked_at = timezone.now()
    else:
        return job
    job.save(update_fields=["state", "state_reason", "stop_asked_at", "ended_at"])
    record("job.cancel", job.pk, user=user, project=job.project)
    return job


@transaction.atomic
def claim_job(job_id: str) -> Job | None:
    """Take a queued job; None where it is not queued: somebody took it, or stopped it, before."""
    now = timezone.now()
    taken = Job.objects.filter(pk=job_id, state=State.QUEUED).update(
        state=State.RUNNING,
        state_reason="",
        claim=secrets.token_hex(8),
        started_at=now,
        heartbeat_at=now,
        done=0,
        total=None,
        text="",
        log="",
    )
    return Job.objects.select_related("project", "created_by").get(pk=job_id) if taken else None


@transaction.atomic
def report_job(job_id: str, claim: str, lines: str = "", **progress: Any) -> bool:
    """Store progress (done, total, text) and lines of the log; False: the job shall end."""
    mine = _mine(job_id, claim)
    mine.update(heartbeat_at=timezone.now(), log=Concat("log", Value(lines)), **progress)
    return mine.filter(state=State.RUNNING).exists()


@transaction.atomic
def beat_job(job_id: str, claim: str) -> bool:
    """Say that the process which holds the claim lives; False: it holds it no longer."""
    return _mine(job_id, claim).update(heartbeat_at=timezone.now()) > 0


@transaction.atomic
def end_job(
    job_id: str,
    claim: str,
    state: State,
    reason: str = "",
    result: dict[str, Any] | None = None,
) -> bool:
    """The word of the process that holds the claim. False: it held it no longer."""
    ended = _mine(job_id, claim).update(
        state=state,
        state_reason=storable(reason)[:2000],
        result=storable_json(result),
        text="",
        ended_at=timezone.now(),
    )
    return ended > 0


@transaction.atomic
def hand_back_jobs() -> None:
    """Caravan stops now: what is being worked on begins again at the next start."""
    now = timezone.now()
    Job.objects.filter(state=State.STOPPING).update(
        state=State.STOPPED, claim="", ended_at=now, state_reason="stopped with Caravan"
    )
    Job.objects.filter(state=State.RUNNING).update(
        state=State.QUEUED,
        claim="",
        sent_at=now,
        state_reason="Caravan was stopped: it begins again with its next start",
    )


@transaction.atomic
def send_jobs(after: timedelta = SENT_AGAIN_AFTER) -> list[str]:
    """Enqueue the oldest queued jobs again whose message, sent so long ago, may be lost; their ids.

    Only as many as can be worked on at once: the queue does not fill with what must wait.
    """
    now = timezone.now()
    oldest = Job.objects.filter(state=State.QUEUED).order_by("created_at", "pk")
    late = [job.pk for job in oldest[:AT_ONCE] if now - job.sent_at > after]
    Job.objects.filter(pk__in=late).update(sent_at=now)
    for job_id in late:
        queue.send("caravan.work", job_id)
    return late


@transaction.atomic
def judge_jobs(now: datetime | None = None) -> int:
    """End what nobody works on any more as lost, and as stopped what did not stop; how many.

    As with runs, nothing is silent that could not be heard: the database's own outage counts
    against no job.
    """
    now = now or timezone.now()
    pulse = IngestPulse.objects.first()
    if pulse is None or now - pulse.pulse_at > PULSE_LATE or now - pulse.up_since < SILENT_AFTER:
        return 0
    lost = Job.objects.filter(state__in=HELD, heartbeat_at__lt=now - SILENT_AFTER).update(
        state=State.LOST,
        state_reason="its process was not heard of for 30 s: start it again",
        claim="",
        ended_at=now,
    )
    stuck = Job.objects.filter(state=State.STOPPING, stop_asked_at__lt=now - STOP_LIMIT).update(
        state=State.STOPPED,
        state_reason=f"did not stop within {STOP_LIMIT.seconds} s and was given up",
        claim="",
        ended_at=now,
    )
    return lost + stuck


def _mine(job_id: str, claim: str) -> QuerySet[Job]:
    return Job.objects.filter(Q(pk=job_id, state__in=HELD, claim=claim) & ~Q(claim=""))
