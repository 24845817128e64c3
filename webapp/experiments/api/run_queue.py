"""REST of the queue of runs: its order, and moves in it."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router, Schema

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import queries, services
from webapp.experiments.api import schemas
from webapp.experiments.models import Run
from webapp.experiments.run_queue import run_queue
from webapp.problems import RefusedError
from webapp.rest.schemas import ProjectRef

router = Router(tags=["runs"])
RUNS = Run.objects.select_related("project", "experiment", "created_by")


class QueuedOut(Schema):
    """A run that waits. `frees`: runs that must end before it starts."""

    id: str
    name: str
    project: ProjectRef
    priority: int
    place: int
    frees: int
    since: datetime
    reason: str


@router.get("/run-queue", response=list[QueuedOut])
def list_run_queue(request: HttpRequest, project: str | None = None) -> Any:
    """Queued runs, project by project, in the order in which they start."""
    actor = access.actor_of(request)
    wanted = access.project_or_all(actor, project)
    return [
        {
            "id": one.run.pk,
            "name": one.run.name,
            "project": one.run.project,
            "priority": one.run.priority,
            "place": one.place,
            "frees": one.frees,
            "since": one.since,
            "reason": one.reason,
        }
        for one in run_queue(actor, wanted)
    ]


class MoveIn(Schema):
    """One of both: a priority from -1000 to 1000, or a place to move to."""

    priority: int | None = None
    place: Literal["up", "down", "front"] | None = None


@router.post("/runs/{run_id}/queue", response=schemas.RunDetailOut)
def move_run(request: HttpRequest, run_id: str, data: MoveIn) -> Any:
    """Change when a queued run starts: the higher its priority, the sooner."""
    actor = access.actor_of(request)
    run = access.get(RUNS.all(), run_id, actor, Role.EDITOR)
    if (data.priority is None) == (data.place is None):
        raise RefusedError("Give exactly one of priority and place.")
    if data.priority is not None:
        services.set_priority(run.pk, actor.user, data.priority)
    elif data.place is not None:
        services.move_in_queue(run.pk, actor.user, data.place)
    return schemas.detail_out(queries.run_detail(RUNS.get(pk=run.pk)))
