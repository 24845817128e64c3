"""The audit log: who changed what, and in which request."""

from typing import Any

from webapp import logs
from webapp.accounts.models import AuditEntry, Project, User


def record(
    action: str, target: str, *, user: User | None, project: Project | None, **detail: Any
) -> None:
    """Add an entry, for example `record("run.launch", run.id, user=user, project=project)`."""
    AuditEntry.objects.create(
        action=action,
        target=target,
        user=user,
        project=project,
        detail=detail,
        request_id=logs.request_id.get(),
    )
