"""What waits for a person: mentions and replies that they may still see, queues, disputes."""

from dataclasses import dataclass

from django.db.models import Count, Exists, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from webapp.accounts.models import Membership, Role, User
from webapp.paging import Page, keyset
from webapp.reviews.models import Notice, Queue, QueueItem, Verdict
from webapp.reviews.queue_queries import waiting_for

PAGE = 50


@dataclass(frozen=True)
class Inbox:
    """`unread` counts notices of all pages; `waiting` queues have `left`, `disputed` ones have
    `disputes` that the person may rule on."""

    notices: Page[Notice]
    unread: int
    waiting: list[Queue]
    disputed: list[Queue]

    @property
    def count(self) -> int:
        """What the navigation shows: unread notices and queues that wait."""
        return self.unread + len(self.waiting)


def notices_of(user: User) -> QuerySet[Notice]:
    """Of projects that the person is a member of today: who lost access learns nothing more."""
    return Notice.objects.filter(user=user, project__memberships__user=user)


def inbox(
    user: User,
    project: str | None = None,
    *,
    unread_only: bool = False,
    cursor: str | None = None,
    limit: int = PAGE,
) -> Inbox:
    """Of one project, or of all of the person's."""
    notices, waiting, disputed = notices_of(user), waiting_for(user), disputes_for(user)
    if project is not None:
        notices = notices.filter(project=project)
        waiting = waiting.filter(project=project)
        disputed = disputed.filter(project=project)
    unread = notices.filter(read_at=None)
    rows = (unread if unread_only else notices).select_related(
        "project", "comment__author", "comment__trajectory"
    )
    page = keyset(rows, ("-created_at", "-id"), cursor, limit)
    return Inbox(page, unread.count(), list(waiting), list(disputed))


def disputes_for(user: User) -> QuerySet[Queue]:
    """Open queues of projects that the person edits, with `disputes` of other people."""
    open_disputes = (
        QueueItem.objects.filter(queue=OuterRef("pk"), outcome="disputed")
        .exclude(Exists(Verdict.objects.filter(item=OuterRef("pk"), reviewer=user)))
        .order_by()
        .values("queue")
        .annotate(count=Count("pk"))
        .values("count")
    )
    editing = Membership.objects.filter(user=user, role__in=[Role.EDITOR, Role.ADMIN])
    return (
        Queue.objects.filter(closed_at=None, project__in=editing.values("project"))
        .select_related("project")
        .annotate(disputes=Coalesce(Subquery(open_disputes), 0))
        .filter(disputes__gt=0)
        .order_by("created_at")
    )


def count_of(user: User) -> int:
    """What the navigation shows, in two queries."""
    return notices_of(user).filter(read_at=None).count() + waiting_for(user).count()
