"""The queue of runs: who waits behind whom, and what a move in it takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from webapp.accounts.access import Actor, visible
from webapp.accounts.models import Project
from webapp.experiments.models import HEAVY_BY_RUN, Attempt, Run, State
from webapp.experiments.states import HOLDS_A_PLACE, QUEUE_ORDER

PLACES = ("up", "down", "front")


@dataclass(frozen=True)
class Waiting:
    """What decides a run's place: first the priority, the higher the earlier, then its age."""

    pk: str
    priority: int
    age: Any  # smaller is older; no two are equal


def reordered(queue: Sequence[Waiting], pk: str, place: str) -> dict[str, int]:
    """New priorities that move one run of a queue, given in its order, and leave all others' order.

    Only priorities that must rise are in the answer; moving down raises the one behind.
    """
    at = next(index for index, one in enumerate(queue) if one.pk == pk)
    wished = list(queue)
    if place == "front":
        wished.insert(0, wished.pop(at))
    else:
        other = at - 1 if place == "up" else at + 1
        if not 0 <= other < len(queue):
            return {}
        wished[at], wished[other] = wished[other], wished[at]
    changed: dict[str, int] = {}
    behind: tuple[int, Any] | None = None  # priority and age of the run behind
    for one in reversed(wished):
        priority = one.priority
        if behind is not None:
            priority = max(priority, behind[0] + (one.age > behind[1]))
        if priority != one.priority:
            changed[one.pk] = priority
        behind = (priority, one.age)
    return changed


@dataclass(frozen=True)
class Queued:
    """A run that waits, and what for."""

    run: Run
    place: int  # from 1 on, within its project
    since: datetime
    frees: int  # runs that must end before it starts; 0: it starts now
    reason: str  # why it is back in the queue, if it was taken once


@dataclass(frozen=True)
class Places:
    """How many runs of a project work at once, and how many do."""

    project: Project
    held: int

    @property
    def free(self) -> int:
        """Below 0 where the limit was lowered while more were at work."""
        return self.project.max_running - self.held


def run_queue(actor: Actor, project: str | None = None) -> list[Queued]:
    """The queued runs of the actor's projects, project by project, in the order they start in."""
    waiting = Attempt.objects.filter(
        state=State.QUEUED, run__project__in=list(actor.roles()), run__is_external=False
    )
    if project:
        waiting = waiting.filter(run__project=project)
    rows = waiting.select_related("run__project", "run__experiment", "run__created_by").order_by(
        "run__project__name", "run__project_id", *QUEUE_ORDER
    )
    rows = rows.defer(*HEAVY_BY_RUN)
    free = {one.project.pk: one.free for one in places(actor)}
    placed = dict.fromkeys(free, 0)
    found = []
    for attempt in rows:
        run = attempt.run
        placed[run.project_id] += 1
        place = placed[run.project_id]
        frees = max(place - free[run.project_id], 0)
        found.append(Queued(run, place, attempt.created_at, frees, attempt.state_reason))
    return found


def places(actor: Actor) -> list[Places]:
    """Of each of the actor's projects."""
    holds = Q(runs__state__in=HOLDS_A_PLACE, runs__is_external=False)
    rows = visible(Project.objects.all(), actor).annotate(held=Count("runs", filter=holds))
    return [Places(project, project.held) for project in rows.order_by("name", "pk")]
