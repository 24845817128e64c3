"""Reading index rows of trajectories, and comments: lists with filters, groups, threads."""

from collections.abc import Iterator
from typing import Annotated, Literal

from django.db.models import Count, Q, QuerySet
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from engine.records.trajectory import StopReason
from webapp.experiments.models import Run
from webapp.paging import MAX_PAGE, Page, keyset
from webapp.reviews.inbox import inbox as inbox
from webapp.reviews.models import Comment, TrainedTokens, Trajectory
from webapp.reviews.trained import with_newest

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


def all_of(run: Run, wanted: Filter) -> Iterator[tuple[Trajectory, TrainedTokens | None]]:
    """All that pass the filter, the newest first, a large page at a time, each with the newest
    record of what training saw of it."""
    cursor: str | None = None
    while True:
        page = keyset(matching(run, wanted), NEWEST_FIRST, cursor, MAX_PAGE)
        yield from with_newest(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return


def group_of(trajectory: Trajectory) -> list[Trajectory]:
    """The trajectories of the same prompt at the same policy, itself included, in a fixed order."""
    if not trajectory.group_id:  # a trainer of one's own may name no groups
        return [trajectory]
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
