"""Which attempts are silent, and what that means. Only Ray's word makes one lost."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from webapp.experiments.models import Attempt, State
from webapp.experiments.services.attempts import HEARTBEAT_S
from webapp.experiments.states import end_unheard, lock, move, newest_attempt
from webapp.monitoring.models import IngestPulse

SILENT_AFTER = timedelta(seconds=10)
PULSE_S = 2
PULSE_LATE = timedelta(seconds=3 * PULSE_S)


@dataclass(frozen=True)
class Silent:
    """An attempt that ingest could hear and did not."""

    attempt_id: str
    run_id: str
    ray_job_id: str
    state: State
    silence_s: float
    is_external: bool = False


def silent_attempts(now: datetime | None = None) -> list[Silent]:
    """Attempts without a heartbeat for 10 s in which ingest was up without a break.

    While ingest is down nobody is silent: its outage counts against no run.
    """
    now = now or timezone.now()
    pulse = IngestPulse.objects.first()
    if pulse is None or now - pulse.pulse_at > PULSE_LATE:
        return []
    found = []
    active = Attempt.objects.filter(
        state__in=(State.RUNNING, State.UNREACHABLE, State.STOPPING), ended_at=None
    )
    for attempt in active.select_related("run").order_by("pk"):
        heard = attempt.heartbeat_at or attempt.submitted_at or attempt.created_at
        silence = now - max(heard, pulse.up_since)
        if silence > SILENT_AFTER:
            found.append(
                Silent(
                    attempt.pk,
                    attempt.run_id,
                    attempt.ray_job_id,
                    State(attempt.state),
                    silence.total_seconds(),
                    attempt.run.is_external,
                )
            )
    return found


@transaction.atomic
def mark_unreachable(silent: Silent) -> bool:
    """Ray still says it runs. False where it was heard of meanwhile, or is not running."""
    run = lock(silent.run_id)
    attempt = newest_attempt(run)
    if attempt.pk != silent.attempt_id or attempt.state != State.RUNNING or _heard(attempt):
        return False
    move(run, attempt, State.UNREACHABLE, f"no heartbeat for {silent.silence_s:.0f} s")
    return True


@transaction.atomic
def mark_lost(silent: Silent, reason: str) -> bool:
    """Heartbeats are missing and Ray knows nothing of it, or says that it ended."""
    run = lock(silent.run_id)
    attempt = newest_attempt(run)
    if attempt.pk != silent.attempt_id or attempt.ended_at is not None or _heard(attempt):
        return False
    end_unheard(run, attempt, State.LOST, reason)
    return True


def _heard(attempt: Attempt) -> bool:
    return attempt.heartbeat_at is not None and (
        timezone.now() - attempt.heartbeat_at < timedelta(seconds=2 * HEARTBEAT_S)
    )


@transaction.atomic
def pulse(now: datetime | None = None) -> None:
    """Ingest says that it is up, every PULSE_S; after a break its time starts anew."""
    now = now or timezone.now()
    row, created = IngestPulse.objects.select_for_update(no_key=True).get_or_create(
        id=1, defaults={"up_since": now, "pulse_at": now}
    )
    if not created:
        if now - row.pulse_at > PULSE_LATE:
            row.up_since = now
        row.pulse_at = now
        row.save()
