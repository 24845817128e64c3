"""The order in which a project's queued runs start: by priority, then by age."""

from django.db import transaction

from webapp import live
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import Attempt, Run, State
from webapp.experiments.run_queue import PLACES, Waiting, reordered
from webapp.experiments.states import QUEUE_ORDER, lock, said
from webapp.problems import conflict, invalid_field

MOST = 1000


def check_priority(priority: int) -> int:
    """The priority, if it is one. Raises RefusedError."""
    if not -MOST <= priority <= MOST:
        raise invalid_field(
            "priority", f"A priority is a whole number from {-MOST} to {MOST}, not {priority}."
        )
    return priority


@transaction.atomic
def set_priority(run_id: str, user: User, priority: int) -> Run:
    """Give a queued run another priority; among equals the older one starts first."""
    run = _queued(run_id)
    _set(run, user, check_priority(priority))
    return run


@transaction.atomic
def move_in_queue(run_id: str, user: User, place: str) -> Run:
    """Move a queued run one place "up" or "down", or to the "front".

    The priorities of others rise only as far as their own order needs it. Raises RefusedError.
    """
    if place not in PLACES:
        raise invalid_field("place", f"{place!r} is no place: use {', '.join(PLACES)}.")
    project_id = Run.objects.values_list("project_id", flat=True).get(pk=run_id)
    Project.objects.select_for_update(no_key=True).get(pk=project_id)  # one move at a time
    run = _queued(run_id)
    waiting = Attempt.objects.filter(run__project_id=project_id, state=State.QUEUED)
    rows = waiting.order_by(*QUEUE_ORDER).values_list("run_id", "run__priority", "created_at", "pk")
    order = [Waiting(pk, priority, (at, attempt)) for pk, priority, at, attempt in rows]
    changed = reordered(order, run.pk, place)
    if any(priority > MOST for priority in changed.values()):
        raise conflict(f"No priority is above {MOST}: lower those of the runs in front first.")
    for pk, priority in changed.items():
        _set(run if pk == run.pk else lock(pk), user, priority)
    return run


def _queued(run_id: str) -> Run:
    run = lock(run_id)
    if run.state != State.QUEUED:
        raise conflict(f"This run {said(run.state)}: only queued runs have a place in the queue.")
    return run


def _set(run: Run, user: User, priority: int) -> None:
    if run.priority == priority:
        return
    was, run.priority = run.priority, priority
    run.cursor += 1
    run.save(update_fields=["priority", "cursor"])
    record("run.priority", run.pk, user=user, project=run.project, priority=priority, was=was)
    live.announce(run)
