"""The states of runs and attempts: which may follow which, and the one function that moves them."""

from typing import Any

from django.conf import settings
from django.utils import timezone

from webapp import live, queue
from webapp.accounts.models import Project
from webapp.accounts.webhooks import EVENTS, notify
from webapp.experiments.models import Attempt, Run, State
from webapp.problems import conflict

ENDED = (State.SUCCEEDED, State.STOPPED, State.FAILED, State.INTERRUPTED, State.LOST)
RESUMABLE = (State.STOPPED, State.FAILED, State.INTERRUPTED, State.LOST)
HOLDS_A_PLACE = (State.STARTING, State.RUNNING, State.UNREACHABLE, State.STOPPING)

QUEUE_ORDER = ("-run__priority", "created_at", "pk")  # of a project's queued attempts

# An ended attempt never moves again; an ended run moves only to `queued`, with a new attempt.
FOLLOWS: dict[str, tuple[State, ...]] = {
    State.QUEUED: (State.STARTING, State.STOPPED, State.FAILED),
    State.STARTING: (State.QUEUED, State.RUNNING, State.STOPPING, *ENDED),
    State.RUNNING: (State.UNREACHABLE, State.STOPPING, *ENDED),
    State.UNREACHABLE: (State.RUNNING, State.STOPPING, *ENDED),
    State.STOPPING: ENDED,
}


def lock(run_id: str) -> Run:
    """The run, its row locked until the transaction ends. Attempts are locked by their run.

    Here and elsewhere locks are of the kind that lets others refer to the row meanwhile (no_key):
    an audit entry, say, does not wait for them, so that two transactions cannot wait in a circle.
    """
    return Run.objects.select_for_update(no_key=True).get(pk=run_id)


def said(state: str) -> str:
    """A state as the end of a sentence: "has failed", "is queued"."""
    return f"has {state}" if state in (State.SUCCEEDED, State.FAILED) else f"is {state}"


def newest_attempt(run: Run) -> Attempt:
    return run.attempts.order_by("-number")[0]


def move(run: Run, attempt: Attempt, to: State, reason: str = "") -> None:
    """Move a locked run and its newest attempt. Raises RefusedError (409) for a forbidden move."""
    if to not in FOLLOWS.get(attempt.state, ()):
        raise conflict(f"This run {said(attempt.state)}: it cannot become {to.value}.")
    now = timezone.now()
    for row in (run, attempt):
        row.state, row.state_reason = to, reason
        if to is State.RUNNING and row.started_at is None:
            row.started_at = now
        if to in ENDED:
            row.ended_at = now
    if to in ENDED:
        attempt.revoked_at = attempt.revoked_at or now
        attempt.ticket_digest = ""
        run.wish = "run"
    run.cursor += 1
    attempt.save()
    run.save()
    live.announce(run)
    if (event := f"run.{to.value}") in EVENTS:
        notify(run.project, event, {"run": told_of(run)})
    if to in ENDED:
        send_due(run.project_id)
        if (of := getattr(run, "trial_run", None)) is not None:  # its sweep may begin another
            queue.send("caravan.sweep", of.trial.sweep_id)


def told_of(run: Run) -> dict[str, Any]:
    """What a webhook's receiver is told of a run."""
    return {
        "id": run.pk,
        "name": run.name,
        "experiment": run.experiment.name,
        "state": run.state,
        "reason": run.state_reason,
        "headline": run.headline,
        "url": f"{settings.CARAVAN_URL}/runs/{run.pk}/",
    }


def end_unheard(run: Run, attempt: Attempt, otherwise: State, reason: str) -> None:
    """End a locked run whose driver said nothing: as what was asked of it, else as `otherwise`."""
    if attempt.state == State.STOPPING:
        move(run, attempt, State.STOPPED, reason)
    elif run.wish == "interrupt":
        move(run, attempt, State.INTERRUPTED, reason)
    else:
        move(run, attempt, otherwise, reason)


def reopen(run: Run) -> None:
    """Put a locked run that has ended back to `queued`, for a new attempt; the caller saves it."""
    run.state, run.state_reason, run.wish = State.QUEUED, "", "run"
    run.ended_at, run.phase, run.archived_at = None, "", None


def due(project_id: str) -> list[str]:
    """Ids of the queued attempts that may start now, first those of higher priority."""
    runs = Run.objects.filter(project_id=project_id, is_external=False)
    held = runs.filter(state__in=HOLDS_A_PLACE).count()
    free = Project.objects.get(pk=project_id).max_running - held
    if free <= 0:
        return []
    waiting = Attempt.objects.filter(run__project_id=project_id, state=State.QUEUED)
    return list(waiting.order_by(*QUEUE_ORDER).values_list("pk", flat=True)[:free])


def send_due(project_id: str) -> None:
    """Enqueue the submission of every attempt that may start."""
    for attempt_id in due(project_id):
        queue.send("caravan.submit", attempt_id)
