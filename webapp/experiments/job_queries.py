"""Reads of jobs."""

from django.db.models import QuerySet

from webapp.experiments.jobs import KINDS
from webapp.experiments.models import Job, State
from webapp.paging import Page, keyset
from webapp.problems import invalid_field

ORDER = ("-created_at", "-id")
ACTIVE = "active"


def list_jobs(
    jobs: QuerySet[Job],
    kind: str = "",
    state: str = "",
    subject: str = "",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Job]:
    """A page of these jobs, the newest first. Raises RefusedError for an unknown kind or state."""
    if kind:
        if kind not in KINDS:
            raise invalid_field("kind", f"There is no kind {kind!r}: use {', '.join(KINDS)}.")
        jobs = jobs.filter(kind=kind)
    if state == ACTIVE:
        jobs = jobs.filter(ended_at=None)
    elif state:
        if state not in State.values:
            known = ", ".join((ACTIVE, *State.values))
            raise invalid_field("state", f"There is no state {state!r}: use {known}.")
        jobs = jobs.filter(state=state)
    if subject:
        jobs = jobs.filter(subject=subject)
    # What a list does not show may be large.
    return keyset(jobs.defer("log", "result", "spec"), ORDER, cursor, limit)
