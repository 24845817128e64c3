"""Reading index rows, comments and queues: lists with filters, groups, threads, progress."""

from dataclasses import dataclass
from typing import Annotated, Literal

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from engine.records.trajectory import StopReason
from webapp.accounts.models import Project, User
from webapp.experiments.models import Run
from webapp.paging import MAX_PAGE, Page, keyset
from webapp.reviews.models import Comment, Queue, QueueItem, Trajectory, Verdict
from webapp.reviews.rubric import Agreement, Outcome, agreement, outcome

PAGE = 50
NEWEST_FIRST = ("-cursor", "-id")
_GROUP = 256  # trajectories of a group that are listed


Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]


class Filter(BaseModel):
    """What a list of trajectories is narrowed to; what is not given does not narrow."""

    model_config = ConfigDict(extra="forbid")

    purpose: Literal["train", "evaluate", "demonstration"] | None = None
    category: Text | None = Field(None, max_length=40)
    success: bool | None = None
    stop_reason: StopReason | None = None
    min_reward: float | None = Field(None, allow_inf_nan=False)
    max_reward: float | None = Field(None, allow_inf_nan=False)
    task: Text | None = Field(None, max_length=80)
    group: Text | None = Field(None, max_length=80)
    attempt: int | None = Field(None, ge=1)
    failed_calls: bool | None = Field(None, description="Whether a tool call went wrong")
    commented: bool | None = None
    q: Text | None = Field(None, max_length=200, description="Text in the prompt")


def matching(run: Run, wanted: Filter) -> QuerySet[Trajectory]:
    """The run's trajectories that pass the filter."""
    found = Trajectory.objects.filter(run=run).select_related("attempt")
    equal = {
        "purpose": wanted.purpose,
        "category": wanted.category,
        "success": wanted.success,
        "stop_reason": wanted.stop_reason,
        "reward__gte": wanted.min_reward,
        "reward__lte": wanted.max_reward,
        "task_id": wanted.task,
        "group_id": wanted.group,
        "attempt__number": wanted.attempt,
        "prompt__icontains": wanted.q or None,
    }
    found = found.filter(**{name: value for name, value in equal.items() if value is not None})
    if wanted.failed_calls is not None:
        found = found.filter(Q(failed_calls__gt=0) if wanted.failed_calls else Q(failed_calls=0))
    if wanted.commented is not None:
        found = found.filter(comments__isnull=not wanted.commented).distinct()
    return found


def page_of(
    run: Run, wanted: Filter, cursor: str | None = None, limit: int = PAGE
) -> Page[Trajectory]:
    """One page, each row with `comment_count`."""
    counted = matching(run, wanted).annotate(comment_count=Count("comments", distinct=True))
    return keyset(counted, NEWEST_FIRST, cursor, limit)


def export_page(run: Run, wanted: Filter, cursor: str | None) -> Page[Trajectory]:
    """A large page, without counts."""
    return keyset(matching(run, wanted), NEWEST_FIRST, cursor, MAX_PAGE)


def group_of(trajectory: Trajectory) -> list[Trajectory]:
    """The trajectories of the same prompt at the same policy, itself included, in a fixed order."""
    return list(
        Trajectory.objects.filter(run=trajectory.run_id, group_id=trajectory.group_id).order_by(
            "started_at", "id"
        )[:_GROUP]
    )


def comments_on(trajectory: Trajectory) -> QuerySet[Comment]:
    return trajectory.comments.select_related("author").order_by("created_at", "id")


def categories_of(run: Run) -> list[str]:
    """The categories that occur, for the filter's choices."""
    found = Trajectory.objects.filter(run=run).order_by("category")
    return list(found.values_list("category", flat=True).distinct())


def queues_of(project: Project) -> QuerySet[Queue]:
    """The newest first, each with `item_count` and `verdict_count`."""
    return (
        Queue.objects.filter(project=project)
        .select_related("run", "created_by")
        .prefetch_related("assignees")
        .annotate(
            item_count=Count("items", distinct=True),
            verdict_count=Count("items__verdicts", distinct=True),
        )
        .order_by("-created_at")
    )


@dataclass(frozen=True)
class JudgedItem:
    item: QueueItem
    outcome: Outcome
    verdicts: list[Verdict]  # those that the person who asks may see


@dataclass(frozen=True)
class QueueState:
    """Where a queue stands. `reviewers`: (person, verdicts given, of these accepting)."""

    items: list[JudgedItem]
    counts: dict[Outcome, int]
    reviewers: list[tuple[User, int, int]]
    agreement: Agreement | None
    mine: int  # verdicts of the person who asks


def queue_state(queue: Queue, user: User) -> QueueState:
    """All of a queue's items with their outcomes, as `user` may see them.

    Double review is blind: others' verdicts show once the item is complete, or judged by oneself.
    """
    items = queue.items.select_related("trajectory").prefetch_related("verdicts__reviewer")
    judged: list[JudgedItem] = []
    given: dict[int, tuple[User, int, int]] = {}
    pairs: list[tuple[bool, bool]] = []
    for item in items.order_by("position"):
        verdicts = sorted(item.verdicts.all(), key=lambda verdict: verdict.created_at)
        found = outcome([verdict.accepted for verdict in verdicts], queue.reviews_per_item)
        if len(verdicts) >= 2:
            pairs.append((verdicts[0].accepted, verdicts[1].accepted))
        for verdict in verdicts:
            _, count, accepted = given.get(verdict.reviewer_id, (verdict.reviewer, 0, 0))
            given[verdict.reviewer_id] = (
                verdict.reviewer,
                count + 1,
                accepted + verdict.accepted,
            )
        own = [verdict for verdict in verdicts if verdict.reviewer_id == user.pk]
        shown = verdicts if own or found != "open" else []
        judged.append(JudgedItem(item, found, shown))
    outcomes: tuple[Outcome, ...] = ("accepted", "rejected", "disputed", "open")
    return QueueState(
        items=judged,
        counts={name: sum(one.outcome == name for one in judged) for name in outcomes},
        reviewers=sorted(given.values(), key=lambda row: -row[1]),
        agreement=agreement(pairs),
        mine=given.get(user.pk, (user, 0, 0))[1],
    )


def waiting_for(user: User) -> QuerySet[Queue]:
    """Open queues assigned to a person that still have something for them, with `left`."""
    given = (
        Verdict.objects.filter(item=OuterRef("pk"))
        .order_by()
        .values("item")
        .annotate(count=Count("pk"))
        .values("count")
    )
    unjudged = (
        QueueItem.objects.filter(queue=OuterRef("pk"))
        .exclude(verdicts__reviewer=user)
        .annotate(given=Coalesce(Subquery(given), 0))
        .filter(given__lt=OuterRef("reviews_per_item"))
        .order_by()
        .values("queue")
        .annotate(left=Count("pk"))
        .values("left")
    )
    return (
        Queue.objects.filter(assignees=user, closed_at=None)
        .annotate(left=Coalesce(Subquery(unjudged), 0))
        .filter(left__gt=0)
        .order_by("created_at")
    )
