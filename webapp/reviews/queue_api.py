"""REST of review queues: made, judged, turned into dataset versions."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments.models import Dataset, Run
from webapp.paging import keyset
from webapp.rest.etags import check_match, etag_of, tagged
from webapp.rest.schemas import Cursor, Limit
from webapp.reviews import queries, queue_queries, services
from webapp.reviews import queue_schemas as schemas
from webapp.reviews.models import Queue, QueueItem, StepMark, Verdict
from webapp.reviews.rubric import Outcome

router = Router(tags=["review"])
QUEUES = Queue.objects.select_related("project", "run").prefetch_related("assignees")
ITEMS = QueueItem.objects.select_related("queue__project", "trajectory", "other")


def _item(request: HttpRequest, pk: str, role: Role = Role.EDITOR) -> QueueItem:
    return access.get(ITEMS, pk, access.actor_of(request), role)


@router.get("/queues", response=schemas.QueuePage)
def list_queues(
    request: HttpRequest, project: str | None = None, cursor: Cursor = None, limit: Limit = 50
) -> Any:
    """The project's queues, the newest first."""
    chosen = access.default_project(access.actor_of(request), project)
    return keyset(queue_queries.queues_of(chosen), ("-created_at", "-id"), cursor, limit)


@router.get("/runs/{run_id}/queue-preview", response=schemas.PreviewOut)
def preview_queue(
    request: HttpRequest, run_id: str, sample: Query[schemas.Sample], wanted: Query[queries.Filter]
) -> Any:
    """Which trajectories a queue would take, and how many there are of their kind."""
    rows = Run.objects.select_related("experiment__baseline", "parent")
    run = access.get(rows, run_id, access.actor_of(request))
    return services.preview(
        run, wanted, sample.sample, sample.size, style=sample.style, seed=sample.seed
    )


@router.post("/queues", response={201: schemas.QueueOut})
def create_queue(request: HttpRequest, data: schemas.NewQueue) -> Any:
    actor = access.actor_of(request)
    rows = Run.objects.select_related("project", "experiment__baseline", "parent")
    run = access.get(rows, data.run, actor, Role.EDITOR)
    made = services.create_queue(
        run,
        actor.user,
        name=data.name,
        instructions=data.instructions,
        rubric=data.rubric,
        wanted=data.filter,
        size=data.size,
        sample=data.sample,
        style=data.style,
        seed=data.seed,
        reviews_per_item=data.reviews_per_item,
        assignees=data.assignees,
    )
    return Status(201, made)


@router.get("/queues/{pk}", response=schemas.QueueDetail)
def get_queue(request: HttpRequest, response: HttpResponse, pk: str) -> Any:
    actor = access.actor_of(request)
    queue = access.get(QUEUES, pk, actor)
    tagged(response, _tag(queue))
    agreement = queue_queries.agreement_of(queue)
    progress = queue_queries.progress_of(queue, actor.user)
    return {
        "queue": queue,
        **schemas.progress(progress),
        "agreement": agreement
        and {
            "items": agreement.items,
            "share": agreement.share,
            "alpha": agreement.alpha,
            "reviewers": [
                schemas.two_reviewers(first.email, second.email, both)
                for first, second, both in agreement.reviewers
            ],
            "labels": [{"name": name, "alpha": alpha} for name, alpha in agreement.labels],
            "scales": agreement.scales,
        },
    }


@router.get("/queues/{pk}/items", response=schemas.ItemPage)
def list_items(
    request: HttpRequest,
    pk: str,
    outcome: Outcome | None = None,
    cursor: str | None = None,
    limit: int = queue_queries.ITEMS,
) -> Any:
    """The queue's items in their order, of one outcome if it is given."""
    actor = access.actor_of(request)
    queue = access.get(QUEUES, pk, actor)
    page = queue_queries.items_page(queue, actor.user, outcome, cursor, limit)
    return {"items": map(schemas.item_row, page.items), "next_cursor": page.next_cursor}


@router.patch("/queues/{pk}", response=schemas.QueueOut)
def change_queue(
    request: HttpRequest, response: HttpResponse, pk: str, data: schemas.QueueChange
) -> Any:
    """Close a queue, or open it again."""
    actor = access.actor_of(request)
    access.get(QUEUES, pk, actor, Role.EDITOR)
    with transaction.atomic():
        queue = Queue.objects.select_for_update(no_key=True).get(pk=pk)
        check_match(request, _tag(queue))
        queue = services.close_queue(queue, actor.user, data.closed)
    tagged(response, _tag(queue))
    return queue


@router.get("/queues/{pk}/next", response=schemas.NextItem)
def get_next(request: HttpRequest, pk: str, after: int = -1) -> Any:
    """The item that you could judge next, behind position `after`; it is not held for you."""
    actor = access.actor_of(request)
    return _next(services.next_item(access.get(QUEUES, pk, actor), actor.user, after))


@router.post("/queues/{pk}/next", response=schemas.NextItem)
def claim_next(request: HttpRequest, pk: str, data: schemas.After) -> Any:
    """The next item, held for you for five minutes; what else you held in this queue is let go."""
    actor = access.actor_of(request)
    queue = access.get(QUEUES, pk, actor, Role.EDITOR)
    if not services.may_judge(queue, actor.user):
        return _next(None)
    return _next(services.claim_next(queue, actor.user, data.after))


def _next(item: QueueItem | None) -> dict[str, str | None]:
    if item is None:
        return {"item": None, "trajectory": None, "other": None}
    return {"item": item.pk, "trajectory": item.trajectory_id, "other": item.other_id}


@router.get("/queue-items/{pk}", response=schemas.ItemDetail)
def get_item(request: HttpRequest, pk: str) -> Any:
    user = access.actor_of(request).user
    item = _item(request, pk, Role.VIEWER)
    page = queue_queries.items_page(item.queue, user, only=item.pk)
    return schemas.item_row(page.items[0]) | {"marks": item.marks.filter(reviewer=user)}


@router.post("/queue-items/{pk}/claim", response=schemas.ClaimOut)
def claim_item(request: HttpRequest, pk: str) -> Any:
    """Hold an item for five minutes, or five minutes longer; 409 where others hold it."""
    user = access.actor_of(request).user
    item = _item(request, pk)
    held = services.claim(item, user) if services.may_judge(item.queue, user) else None
    return {"expires_at": held and held.expires_at}


@router.delete("/queue-items/{pk}/claim", response={204: None})
def release_item(request: HttpRequest, pk: str) -> Any:
    services.release(_item(request, pk), access.actor_of(request).user)
    return Status(204, None)


@router.put("/queue-items/{pk}/verdict", response=schemas.VerdictOut)
def put_verdict(request: HttpRequest, pk: str, data: schemas.VerdictIn) -> Verdict:
    """Your verdict on an item, given or changed; on a dispute of others, your ruling."""
    user = access.actor_of(request).user
    return services.judge(_item(request, pk), user, **data.model_dump())


@router.delete("/queue-items/{pk}/verdict", response=schemas.VerdictOut)
def withdraw_verdict(request: HttpRequest, pk: str) -> Verdict:
    """Take your verdict back; the answer is what it was, and the item is held for you."""
    return services.withdraw(_item(request, pk), access.actor_of(request).user)


@router.put("/queue-items/{pk}/marks/{step}", response=schemas.MarkOut)
def put_mark(request: HttpRequest, pk: str, step: int, data: schemas.MarkIn) -> StepMark | None:
    """Mark a step of the item's trajectory as good, neutral or bad."""
    user = access.actor_of(request).user
    return services.mark_step(_item(request, pk), user, step, data.mark, data.note)


@router.delete("/queue-items/{pk}/marks/{step}", response={204: None})
def delete_mark(request: HttpRequest, pk: str, step: int) -> Any:
    services.mark_step(_item(request, pk), access.actor_of(request).user, step, None)
    return Status(204, None)


@router.get("/queues/{pk}/versions", response=list[schemas.MadeVersion])
def list_versions(request: HttpRequest, pk: str) -> Any:
    """Dataset versions made from the queue's verdicts, and the runs that learn from them."""
    return queue_queries.versions_of(access.get(QUEUES, pk, access.actor_of(request)))


@router.post("/queues/{pk}/dataset", response={201: schemas.VersionOut})
def make_dataset(request: HttpRequest, pk: str, data: schemas.Target) -> Any:
    """A version of a dataset from the verdicts: accepted trajectories, pairs, or marks on steps, by
    the dataset's kind."""
    actor = access.actor_of(request)
    queue = access.get(QUEUES, pk, actor, Role.EDITOR)
    dataset = access.get(Dataset.objects.all(), data.dataset, actor, Role.EDITOR)
    return Status(201, services.make_dataset(queue, dataset, actor.user))


def _tag(queue: Queue) -> str:
    return etag_of(queue.closed_at)
