"""Every write of trajectories' index rows and of comments."""

from datetime import datetime
from typing import Annotated, Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from engine.records.trajectory import StopReason
from webapp.accounts import audit
from webapp.accounts.models import Role, User
from webapp.experiments.models import Attempt
from webapp.problems import FieldProblem, RefusedError, invalid_field
from webapp.reviews import reading
from webapp.reviews.models import Comment, Trajectory

MAX_COMMENT = 10_000


def _storable(text: str) -> str:
    """PostgreSQL stores neither NUL nor half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


Text = Annotated[str, AfterValidator(_storable)]


class IndexRow(BaseModel):
    """What `engine.records.shards.index_row` writes, checked: it comes from a training job."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[\w.:-]{1,40}$")]
    task_id: Text = Field(max_length=80)
    group_id: Text = Field(max_length=80)
    category: Text = Field(max_length=40)
    purpose: Annotated[str, Field(pattern=r"^(train|evaluate|demonstration)$")]
    prompt: Text = Field(max_length=500)
    stop_reason: StopReason
    reward: float | None = Field(allow_inf_nan=False)
    success: bool
    steps: int = Field(ge=0, lt=2**31)
    calls: int = Field(ge=0, lt=2**31)
    failed_calls: int = Field(ge=0, lt=2**31)
    sampled_tokens: int = Field(ge=0, lt=2**31)
    tokens: int = Field(ge=0, lt=2**31)
    version_min: int = Field(ge=-1, lt=2**31)
    version_max: int = Field(ge=-1, lt=2**31)
    worker: Text = Field(max_length=80)
    started_at: datetime
    duration_s: float = Field(ge=0, allow_inf_nan=False)
    offset: int = Field(ge=0, lt=2**40)
    length: int = Field(gt=0, lt=2**40)


def index_trajectories(
    attempt: Attempt, shard: str, rows: list[dict[str, Any]], cursor: int
) -> int:
    """Store a shard's index rows inside the caller's transaction; a known id changes nothing.

    Returns how many rows are new. Raises RefusedError, naming every field that is wrong.
    """
    checked, problems = [], []
    for index, row in enumerate(rows):
        try:
            checked.append(IndexRow.model_validate(row))
        except ValidationError as error:
            problems += [
                FieldProblem(f"rows.{index}.{'.'.join(map(str, e['loc']))}", e["msg"])
                for e in error.errors(include_url=False, include_input=False)
            ]
    if problems:
        first = problems[0]
        raise RefusedError(
            f"These index rows are malformed: {first.path}: {first.message}", problems
        )
    known = set(
        Trajectory.objects.filter(id__in=[row.id for row in checked]).values_list("id", flat=True)
    )
    Trajectory.objects.bulk_create(
        [
            Trajectory(
                run_id=attempt.run_id,
                attempt=attempt,
                project_id=attempt.run.project_id,
                shard=shard,
                cursor=cursor,
                **row.model_dump(),
            )
            for row in checked
        ],
        ignore_conflicts=True,
    )
    return len({row.id for row in checked} - known)


@transaction.atomic
def add_comment(
    trajectory: Trajectory,
    author: User,
    text: str,
    step: int | None = None,
    field: str = "",
    span: tuple[int, int] | None = None,
) -> Comment:
    """A comment on the trajectory, on a step, or on characters `span` of a field of a step."""
    _check_anchor(trajectory, step, field, span)
    return Comment.objects.create(
        project_id=trajectory.project_id,
        trajectory=trajectory,
        author=author,
        text=_checked_text(text),
        step=step,
        field=field,
        start=span[0] if span else None,
        stop=span[1] if span else None,
    )


def _check_anchor(
    trajectory: Trajectory, step: int | None, field: str, span: tuple[int, int] | None
) -> None:
    if (span is None) != (field == "") or (span is not None and step is None):
        raise invalid_field("field", "A span needs its step, its field, its start and its stop.")
    if step is not None and step >= trajectory.steps:
        raise invalid_field(
            "step", f"There is no step {step}: the trajectory has {trajectory.steps}, from 0."
        )
    if span is None or step is None:
        return
    if field not in ("text", "result"):
        raise invalid_field("field", f"{field!r} cannot be commented on: use text or result.")
    with reading.stored(trajectory) as source:
        size = len(source.field(step, field))
    if not 0 <= span[0] < span[1] <= size:
        raise invalid_field(
            "span", f"Characters {span[0]} to {span[1]} are not in the {field}, which has {size}."
        )


def _checked_text(text: str) -> str:
    text = _storable(text).strip()
    if not text:
        raise invalid_field("text", "Write something first.")
    if len(text) > MAX_COMMENT:
        raise invalid_field(
            "text", f"A comment has at most {MAX_COMMENT} characters; this one has {len(text)}."
        )
    return text


@transaction.atomic
def edit_comment(comment: Comment, user: User, text: str) -> Comment:
    if comment.author_id != user.pk:
        raise PermissionDenied("Only its author can change a comment.")
    comment.text = _checked_text(text)
    comment.edited_at = timezone.now()
    comment.save(update_fields=["text", "edited_at"])
    return comment


@transaction.atomic
def resolve_comment(comment: Comment, user: User, resolved: bool) -> Comment:
    """Mark a comment as dealt with, or open it again."""
    if resolved == (comment.resolved_at is not None):
        return comment
    comment.resolved_at = timezone.now() if resolved else None
    comment.save(update_fields=["resolved_at"])
    audit.record(
        "comment.resolve" if resolved else "comment.reopen",
        comment.id,
        user=user,
        project=comment.project,
        trajectory=comment.trajectory_id,
    )
    return comment


def may_delete(comment: Comment, user: User, role: Role) -> bool:
    """Its author may, and so may an admin of the project."""
    return role is Role.ADMIN or (role is Role.EDITOR and comment.author_id == user.pk)


@transaction.atomic
def delete_comment(comment: Comment, user: User, role: Role) -> None:
    if not may_delete(comment, user, role):
        raise PermissionDenied("Only its author or an admin can delete a comment.")
    audit.record(
        "comment.delete",
        comment.id,
        user=user,
        project=comment.project,
        trajectory=comment.trajectory_id,
    )
    comment.delete()
