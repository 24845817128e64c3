"""The life of an attempt: claimed for submission, submitted, redeemed by its driver, finished."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from webapp import storage
from webapp.accounts.credentials import digest, new_secret
from webapp.accounts.models import Project
from webapp.experiments.models import Attempt, Checkpoint, Run, State
from webapp.experiments.states import due, end_unheard, lock, move, newest_attempt
from webapp.problems import RefusedError, conflict

TICKET_LIFE = timedelta(minutes=10)
HEARTBEAT_S = 3
REPORTED_ENDS = {
    "succeeded": State.SUCCEEDED,
    "stopped": State.STOPPED,
    "failed": State.FAILED,
    "interrupted": State.INTERRUPTED,
}


@dataclass(frozen=True)
class Claim:
    """The right to submit an attempt once, and the ticket that its driver redeems."""

    run_id: str
    attempt_id: str
    ticket: str


@dataclass(frozen=True)
class Redeemed:
    """What a driver gets for its ticket; the token is its credential from now on."""

    token: str
    run: Run
    attempt: Attempt
    resume: Checkpoint | None
    origin: Checkpoint | None  # that a fork starts from


@transaction.atomic
def claim(attempt_id: str) -> Claim | None:
    """Move a queued attempt to `starting`; None where it is not its turn, or was claimed before."""
    attempt = Attempt.objects.select_related("run").filter(pk=attempt_id).first()
    if attempt is None:
        return None
    Project.objects.select_for_update(no_key=True).get(
        pk=attempt.run.project_id
    )  # counts do not race
    run = lock(attempt.run_id)
    attempt.refresh_from_db()
    if attempt.state != State.QUEUED or attempt.pk not in due(run.project_id):
        return None
    ticket = new_secret()
    attempt.ticket_digest = digest("ticket", ticket)
    attempt.ticket_expires_at = timezone.now() + TICKET_LIFE
    attempt.submitted_at = timezone.now()
    move(run, attempt, State.STARTING)
    return Claim(run.pk, attempt.pk, ticket)


@transaction.atomic
def submitted(attempt_id: str, ray_job_id: str) -> None:
    """Remember the Ray job of an attempt."""
    Attempt.objects.filter(pk=attempt_id).update(ray_job_id=ray_job_id)


@transaction.atomic
def requeue(attempt_id: str, reason: str) -> bool:
    """Put a claimed attempt, that no driver has taken, back into the queue. False: too late."""
    run, attempt = _locked(attempt_id)
    if attempt.state != State.STARTING or attempt.token_digest:
        return False
    attempt.ticket_digest, attempt.ray_job_id = "", ""
    move(run, attempt, State.QUEUED, reason)
    return True


@transaction.atomic
def fail_attempt(attempt_id: str, reason: str) -> bool:
    """The attempt ended without a word from its driver. False where it had ended before."""
    run, attempt = _locked(attempt_id)
    if attempt.ended_at is not None:
        return False
    end_unheard(run, attempt, State.FAILED, reason)
    return True


@transaction.atomic
def redeem(attempt_id: str, ticket: str, code_version: str = "") -> Redeemed:
    """Exchange a ticket, once, for the attempt's token. Raises RefusedError (401, 409).

    `code_version`: which code the driver is of."""
    known = Attempt.objects.filter(pk=attempt_id).first()
    if known is None:
        raise RefusedError("There is no such attempt.", status=401)
    run, attempt = _locked(attempt_id)
    if not attempt.ticket_digest or attempt.ticket_digest != digest("ticket", ticket):
        raise RefusedError("This ticket is unknown or was used before.", status=401)
    if attempt.ticket_expires_at is None or attempt.ticket_expires_at <= timezone.now():
        raise RefusedError("This ticket is older than 10 minutes.", status=401)
    if attempt.revoked_at is not None:
        raise conflict("This attempt was revoked.")
    token = f"cva_{new_secret()}"
    attempt.token_digest = digest("attempt", token)
    attempt.ticket_digest = ""
    attempt.code_version = code_version
    attempt.heartbeat_at = timezone.now()
    if attempt.state == State.STARTING:
        move(run, attempt, State.RUNNING)
    else:  # stop was asked for meanwhile: the first heartbeat tells the driver
        attempt.save()
    return Redeemed(token, run, attempt, attempt.resume_from, run.checkpoint)


@transaction.atomic
def finish(run: Run, attempt: Attempt, state: str, reason: str, summary: dict[str, Any]) -> None:
    """The driver's own word on how a locked run's attempt ended."""
    if state not in REPORTED_ENDS:
        raise RefusedError(f"{state!r} is no end: use one of {', '.join(REPORTED_ENDS)}.")
    run.summary = summary
    asked_for = attempt.state_reason if attempt.state == State.STOPPING else ""
    move(run, attempt, REPORTED_ENDS[state], reason[:2000] or asked_for)


def _locked(attempt_id: str) -> tuple[Run, Attempt]:
    attempt = Attempt.objects.get(pk=attempt_id)
    run = lock(attempt.run_id)
    attempt.refresh_from_db()
    if newest_attempt(run).pk != attempt.pk:
        raise conflict("A newer attempt of this run exists.")
    return run, attempt


def storage_of(run: Run) -> str:
    """The folder or URL where the run's own processes keep its files."""
    return storage.run_folder(run.pk)
