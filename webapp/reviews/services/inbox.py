"""Notices of comments: made with the comment, read by the person."""

from collections.abc import Iterable

from django.db.models import Q
from django.utils import timezone

from webapp.accounts.models import User
from webapp.reviews.models import Comment, Notice


def notify(comment: Comment, mentions: Iterable[User]) -> None:
    """Tell who is mentioned, and who wrote in the thread before. Nobody is told of their own
    comment, of one comment twice, or of a project that they are no member of."""
    kinds: dict[int, str] = {}
    if comment.reply_to_id is not None:
        thread = Comment.objects.filter(
            Q(pk=comment.reply_to_id) | Q(reply_to=comment.reply_to_id)
        ).exclude(pk=comment.pk)
        members = thread.filter(author__memberships__project=comment.project_id)
        kinds = dict.fromkeys(members.values_list("author_id", flat=True), "reply")
    kinds |= {person.pk: "mention" for person in mentions}
    if comment.author_id is not None:
        kinds.pop(comment.author_id, None)
    Notice.objects.bulk_create(
        [
            Notice(user_id=pk, project_id=comment.project_id, comment=comment, kind=kind)
            for pk, kind in kinds.items()
        ],
        ignore_conflicts=True,  # an edited comment tells only whom it names anew
    )


def mark_read(
    user: User, ids: Iterable[str] | None, read: bool = True, project: str | None = None
) -> int:
    """Of one's own notices, in one project or in all: these, or all. How many changed."""
    notices = Notice.objects.filter(user=user, read_at__isnull=read)
    if project is not None:
        notices = notices.filter(project=project)
    if ids is not None:
        notices = notices.filter(pk__in=[pk for pk in ids if "\0" not in pk])
    return notices.update(read_at=timezone.now() if read else None)
