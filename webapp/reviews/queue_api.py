"""REST of review queues."""

from datetime import datetime
from typing import Any, Literal

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema, Status
from pydantic import Field

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments.models import Dataset, Run
from webapp.rest.etags import check_match, etag_of, tagged
from webapp.reviews import queries, services
from webapp.reviews.models import Queue, QueueItem, Verdict
from webapp.reviews.rubric import Rubric

router = Router(tags=["review"])
QUEUES = Queue.objects.select_related("project", "run").prefetch_related("assignees")
ITEMS = QueueItem.objects.select_related("queue__project", "trajectory")


class NewQueue(Schema):
    run: str
    name: str
    instructions: str = Field("", description="Markdown")
    rubric: Rubric = Rubric()
    filter: queries.Filter = queries.Filter()
    size: int = Field(50, ge=1, description="Trajectories, at most")
    sampled: bool = Field(False, description="A random sample instead of the newest")
    reviews_per_item: Literal[1, 2] = Field(1, description="2: blind double review")
    assignees: list[int] = Field([], description="Ids of editors; empty: all of them")


class QueueOut(Schema):
    id: str
    name: str
    run: str | None = Field(validation_alias="run_id")
    instructions: str
    rubric: Rubric
    filter: dict[str, Any]
    reviews_per_item: int
    assignees: list[int]
    created_at: datetime
    closed_at: datetime | None

    @staticmethod
    def resolve_assignees(queue: Queue) -> list[int]:
        return [person.pk for person in queue.assignees.all()]


class AgreementOut(Schema):
    pairs: int
    share: float
    kappa: float | None


class VerdictOut(Schema):
    reviewer: str = Field(validation_alias="reviewer.email")
    accepted: bool
    labels: list[str]
    scores: dict[str, int]
    note: str
    changed_at: datetime


class ItemOut(Schema):
    id: str
    trajectory: str
    position: int
    outcome: Literal["open", "accepted", "rejected", "disputed"]
    verdicts: list[VerdictOut] = Field(description="Those that you may see")


class QueueDetail(Schema):
    queue: QueueOut
    counts: dict[str, int] = Field(description="Items by outcome")
    agreement: AgreementOut | None
    items: list[ItemOut]


class NextItem(Schema):
    item: str | None = Field(description="null: nothing is left for you")
    trajectory: str | None


class VerdictIn(Schema):
    accepted: bool
    labels: list[str] = []
    scores: dict[str, int] = {}
    note: str = Field("", max_length=10_000)


class QueueChange(Schema):
    closed: bool


class Target(Schema):
    dataset: str = Field(description="A dataset of trajectories")


class DatasetVersionOut(Schema):
    id: str
    number: int
    rows: int
    source: dict[str, Any]


@router.get("/queues", response=list[QueueOut])
def list_queues(request: HttpRequest, project: str | None = None) -> Any:
    """The project's queues, the newest first."""
    return queries.queues_of(access.default_project(access.actor_of(request), project))


@router.post("/queues", response={201: QueueOut})
def create_queue(request: HttpRequest, data: NewQueue) -> Any:
    actor = access.actor_of(request)
    run = access.get(Run.objects.select_related("project"), data.run, actor, Role.EDITOR)
    made = services.create_queue(
        run,
        actor.user,
        name=data.name,
        instructions=data.instructions,
        rubric=data.rubric,
        wanted=data.filter,
        size=data.size,
        sampled=data.sampled,
        reviews_per_item=data.reviews_per_item,
        assignees=data.assignees,
    )
    return Status(201, made)


@router.get("/queues/{pk}", response=QueueDetail)
def get_queue(request: HttpRequest, response: HttpResponse, pk: str) -> Any:
    actor = access.actor_of(request)
    queue = access.get(QUEUES, pk, actor)
    tagged(response, _tag(queue))
    state = queries.queue_state(queue, actor.user)
    return {
        "queue": queue,
        "counts": state.counts,
        "agreement": state.agreement,
        "items": [
            {
                "id": one.item.pk,
                "trajectory": one.item.trajectory_id,
                "position": one.item.position,
                "outcome": one.outcome,
                "verdicts": one.verdicts,
            }
            for one in state.items
        ],
    }


@router.patch("/queues/{pk}", response=QueueOut)
def change_queue(request: HttpRequest, response: HttpResponse, pk: str, data: QueueChange) -> Any:
    """Close a queue, or open it again."""
    actor = access.actor_of(request)
    access.get(QUEUES, pk, actor, Role.EDITOR)
    with transaction.atomic():
        queue = Queue.objects.select_for_update(no_key=True).get(pk=pk)
        check_match(request, _tag(queue))
        queue = services.close_queue(queue, actor.user, data.closed)
    tagged(response, _tag(queue))
    return queue


@router.get("/queues/{pk}/next", response=NextItem)
def get_next(request: HttpRequest, pk: str, after: int = -1) -> Any:
    """The item that you should judge next, behind position `after`."""
    actor = access.actor_of(request)
    item = services.next_item(access.get(QUEUES, pk, actor), actor.user, after)
    return {"item": item and item.pk, "trajectory": item and item.trajectory_id}


@router.put("/queue-items/{pk}/verdict", response=VerdictOut)
def put_verdict(request: HttpRequest, pk: str, data: VerdictIn) -> Verdict:
    """Your verdict on an item, given or changed."""
    actor = access.actor_of(request)
    item = access.get(ITEMS, pk, actor, Role.EDITOR)
    return services.judge(item, actor.user, **data.model_dump())


@router.post("/queues/{pk}/dataset", response={201: DatasetVersionOut})
def make_dataset(request: HttpRequest, pk: str, data: Target) -> Any:
    """A version of a dataset with the accepted trajectories, each with its verdicts."""
    actor = access.actor_of(request)
    queue = access.get(QUEUES, pk, actor, Role.EDITOR)
    dataset = access.get(Dataset.objects.all(), data.dataset, actor, Role.EDITOR)
    return Status(201, services.make_dataset(queue, dataset, actor.user))


def _tag(queue: Queue) -> str:
    return etag_of(queue.closed_at)
