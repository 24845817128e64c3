"""Comments: written by editors, changed by their authors, resolved by any editor."""

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from webapp import storage
from webapp.accounts import audit
from webapp.accounts.models import Project, Role, User
from webapp.experiments.models import Removal, Run, Upload
from webapp.plain_text import storable
from webapp.problems import RefusedError, invalid_field
from webapp.reviews import reading
from webapp.reviews.mentions import mentioned
from webapp.reviews.models import Comment, Trajectory
from webapp.reviews.services.inbox import notify

MAX_COMMENT = 10_000


@transaction.atomic
def add_comment(
    trajectory: Trajectory,
    author: User,
    text: str,
    step: int | None = None,
    field: str = "",
    span: tuple[int, int] | None = None,
    reply_to: Comment | None = None,
) -> Comment:
    """A comment on the trajectory, on a step, or on characters `span` of a field of a step.

    An answer belongs to the thread of `reply_to` and stands where that one does.

    Raises RefusedError, with 410 where what is commented on is no longer in storage.
    """
    if reply_to is not None:
        reply_to = reply_to.reply_to or reply_to
        if reply_to.trajectory_id != trajectory.pk:
            raise invalid_field("reply_to", "This comment is on another trajectory.")
        step, field = reply_to.step, reply_to.field
        start, stop = reply_to.start, reply_to.stop
        span = None if start is None or stop is None else (start, stop)
    else:
        _check_anchor(trajectory, step, field, span)
    _hold(trajectory, is_new_thread=reply_to is None)
    comment = Comment.objects.create(
        project_id=trajectory.project_id,
        trajectory=trajectory,
        author=author,
        text=_checked_text(text),
        step=step,
        field=field,
        start=span[0] if span else None,
        stop=span[1] if span else None,
        reply_to=reply_to,
    )
    notify(comment, mentioned(comment.text, members_of(trajectory.project)))
    return comment


def members_of(project: Project) -> QuerySet[User]:
    """Whom a comment can mention."""
    return User.objects.filter(memberships__project=project, is_active=True).order_by("email")


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


def _hold(trajectory: Trajectory, is_new_thread: bool) -> None:
    """Keep the shard until the transaction ends: pruning locks the run first, too, then sees what
    was committed before it."""
    run = Run.objects.select_for_update(no_key=True).filter(pk=trajectory.run_id)
    if not run.values_list("pk"):
        raise RefusedError("The run of this trajectory was deleted.", status=410)
    shard = trajectory.shard
    is_held = Upload.objects.filter(run=trajectory.run_id, sha256=shard).exists()
    goes = not is_held and Removal.objects.filter(kind="blob", name=shard).exists()
    if is_new_thread and (goes or not storage.has_blob(shard)):
        raise RefusedError(
            f"The shard {shard[:12]}… that holds this trajectory is no longer in storage: there is "
            "nothing left that a comment could be on.",
            status=410,
        )


def _checked_text(text: str) -> str:
    text = storable(text).strip()
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
    notify(comment, mentioned(comment.text, members_of(comment.project)))
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
