"""REST of what waits for a person, of whom comments can mention, and of suspects of a scheme."""

from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from webapp.accounts import access
from webapp.accounts.models import Project
from webapp.experiments.models import RewardScheme
from webapp.reviews import inbox as inboxes
from webapp.reviews import mentions, services, suspects
from webapp.reviews.models import Notice, Queue, QueueItem

router = Router(tags=["review"])


class NoticeOut(Schema):
    id: str
    kind: str = Field(description="mention or reply")
    project: str = Field(validation_alias="project_id")
    comment: str = Field(validation_alias="comment_id")
    trajectory: str = Field(validation_alias="comment.trajectory_id")
    step: int | None = Field(validation_alias="comment.step")
    author: str
    text: str = Field(validation_alias="comment.text")
    created_at: datetime
    read_at: datetime | None

    @staticmethod
    def resolve_author(notice: Notice) -> str:
        return str(notice.comment.author or "")


class WaitingQueue(Schema):
    id: str
    name: str
    project: str = Field(validation_alias="project_id")
    items: int = Field(description="That you could judge, or disputes that you could settle")

    @staticmethod
    def resolve_items(queue: Queue) -> int:
        return int(getattr(queue, "left", 0) or getattr(queue, "disputes", 0))


class InboxOut(Schema):
    unread: int
    notices: list[NoticeOut]
    next_cursor: str | None
    waiting: list[WaitingQueue] = Field(description="Queues assigned to you")
    disputed: list[WaitingQueue] = Field(description="Queues with disputes of others")


class ReadIn(Schema):
    notices: list[str] | None = Field(None, max_length=1_000, description="Ids; null: all")
    read: bool = True


class ReadOut(Schema):
    changed: int


class PersonOut(Schema):
    handle: str = Field(description="What follows the @ of a mention")
    name: str


class OfVersionOut(Schema):
    number: int = Field(description="Version of the scheme")
    judged: int
    suspects: int
    unpaid: int
    underpaid: int
    paid: int


class SuspectOut(Schema):
    item: str = Field(validation_alias="id")
    queue: str = Field(validation_alias="queue_id")
    trajectory: str = Field(validation_alias="trajectory_id")
    run: str = Field(validation_alias="trajectory.run_id")
    version: int = Field(validation_alias="trajectory.run.reward_scheme.number")
    label: str = Field(validation_alias="outcome")
    contradiction: str = Field(
        description="unpaid: accepted and failed; underpaid: accepted and below its group's mean; "
        "paid: rejected and solved"
    )
    success: bool = Field(validation_alias="trajectory.success")
    reward: float | None = Field(validation_alias="trajectory.reward")
    group_mean: float | None


class SuspectsOut(Schema):
    versions: list[OfVersionOut]
    items: list[SuspectOut]
    next_cursor: str | None


@router.get("/inbox", response=InboxOut)
def get_inbox(
    request: HttpRequest,
    project: str | None = None,
    unread: bool = False,
    cursor: str | None = None,
    limit: int = inboxes.PAGE,
) -> Any:
    """Your mentions, replies to you, queues and disputes that wait; the newest first."""
    actor = access.actor_of(request)
    of = _project_of(actor, project)
    found = inboxes.inbox(actor.user, of, unread_only=unread, cursor=cursor, limit=limit)
    return {
        "unread": found.unread,
        "notices": found.notices.items,
        "next_cursor": found.notices.next_cursor,
        "waiting": found.waiting,
        "disputed": found.disputed,
    }


@router.post("/inbox/read", response=ReadOut)
def read_notices(request: HttpRequest, data: ReadIn) -> Any:
    """Mark notices of yours as read, or as unread."""
    actor = access.actor_of(request)
    if not actor.may_write:
        raise PermissionDenied("This token can only read.")
    of = _project_of(actor, None)
    return {"changed": services.mark_read(actor.user, data.notices, data.read, of)}


def _project_of(actor: access.Actor, project: str | None) -> str | None:
    """The project that is asked for; of a token that is bound to one, that one."""
    if project is not None:
        return access.default_project(actor, project).pk
    return actor.token.project_id if actor.token else None


@router.get("/projects/{project_id}/people", response=list[PersonOut])
def list_people(request: HttpRequest, project_id: str) -> Any:
    """Whom a comment can mention, as `@handle`."""
    project = access.get(Project.objects.all(), project_id, access.actor_of(request))
    known = mentions.handles(services.members_of(project))
    return [{"handle": handle, "name": str(person)} for handle, person in sorted(known.items())]


@router.get("/reward-schemes/{scheme_id}/suspects", response=SuspectsOut)
def list_suspects(
    request: HttpRequest,
    scheme_id: str,
    version: int | None = None,
    cursor: str | None = None,
    limit: int = suspects.SHOWN,
) -> Any:
    """Labels that contradict the reward of a scheme, with counts by version."""
    scheme = access.get(RewardScheme.objects.all(), scheme_id, access.actor_of(request))
    page = suspects.page_of(scheme, version, cursor, limit)
    rows: list[QueueItem] = page.items
    return {
        "versions": suspects.counts_of(scheme),
        "items": rows,
        "next_cursor": page.next_cursor,
    }
