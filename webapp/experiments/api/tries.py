"""REST of "Try it": the tasks of a checkpoint's run, and one of them played."""

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import queries, services, tries
from webapp.experiments.api.checkpoints import find
from webapp.experiments.api.schemas import RunDetailOut, detail_out

router = Router(tags=["checkpoints"])
Tasks = Literal["held_out", "quick"]


class TaskOut(Schema):
    """`position` names it in a try."""

    position: int
    category: str
    prompt: str
    answer: str


class TryIn(Schema):
    """A task by its position, or a question with its right answer; with neither, one at random."""

    tasks: Tasks = "held_out"
    position: int | None = None
    question: str | None = None
    answer: str | None = None
    temperature: float = 0.0


@router.get("/checkpoints/{checkpoint_id}/tasks", response=list[TaskOut])
def list_tasks(
    request: HttpRequest,
    checkpoint_id: str,
    tasks: Tasks = "held_out",
    q: str = "",
    start: Annotated[int, Query(ge=0)] = 0,
    count: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Any:
    """Tasks of the checkpoint's run that nothing trained on, with their answers."""
    found = tries.tasks_of(find(request, checkpoint_id).run, tasks, q)
    return found[start : start + count]


@router.post("/checkpoints/{checkpoint_id}/try", response={201: RunDetailOut})
def try_checkpoint(request: HttpRequest, checkpoint_id: str, data: TryIn) -> Any:
    """Play one task with the checkpoint's weights, in a run of its own: its trajectory is the
    answer (`GET runs/{id}/trajectories?purpose=evaluate`)."""
    checkpoint = find(request, checkpoint_id, Role.EDITOR)
    user = access.actor_of(request).user
    run = services.try_checkpoint(checkpoint, user, services.Tried(**data.dict()))
    return Status(201, detail_out(queries.run_detail(run)))
