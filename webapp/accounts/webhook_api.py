"""REST of webhooks: addresses that are told of a project's events, and what came of each."""

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router, Schema, Status

from webapp.accounts import access, webhooks
from webapp.accounts.models import Project, Role, Webhook
from webapp.paging import keyset
from webapp.rest import idempotency
from webapp.rest.schemas import Cursor, Limit

router = Router(tags=["team"])


class WebhookIn(Schema):
    url: str
    events: list[str]


class WebhookPatch(Schema):
    url: str | None = None
    events: list[str] | None = None
    enabled: bool | None = None


class WebhookOut(Schema):
    id: str
    url: str
    events: list[str]
    created_at: datetime
    disabled_at: datetime | None


class NewSecret(WebhookOut):
    secret: str  # shown once; another one is made by `rotate`


class DeliveryOut(Schema):
    id: int
    event: str
    body: dict[str, Any]
    state: Literal["waiting", "delivered", "failed"]
    tries: int
    next_at: datetime
    status: int | None
    problem: str
    created_at: datetime
    ended_at: datetime | None


class DeliveryPage(Schema):
    items: list[DeliveryOut]
    next_cursor: str | None


@router.get("/projects/{project_id}/webhooks", response=list[WebhookOut])
def list_webhooks(request: HttpRequest, project_id: str) -> Any:
    project = access.get(Project.objects.all(), project_id, access.actor_of(request), Role.ADMIN)
    return project.webhooks.order_by("created_at", "pk")


@router.post("/projects/{project_id}/webhooks", response={201: NewSecret})
def create_webhook(request: HttpRequest, project_id: str, data: WebhookIn) -> Any:
    """Have an address told of events. The secret that signs deliveries is shown only now."""
    actor = access.actor_of(request)
    project = access.get(Project.objects.all(), project_id, actor, Role.ADMIN)
    webhook = webhooks.create_webhook(project, actor.user, data.url, data.events)
    return Status(201, _with_secret(request, webhook))


@router.get("/webhooks/{webhook_id}", response=WebhookOut)
def get_webhook(request: HttpRequest, webhook_id: str) -> Any:
    return _webhook(request, webhook_id)


@router.patch("/webhooks/{webhook_id}", response=WebhookOut)
def edit_webhook(request: HttpRequest, webhook_id: str, data: WebhookPatch) -> Any:
    webhook = _webhook(request, webhook_id)
    return webhooks.edit_webhook(
        webhook, access.actor_of(request).user, **data.dict(exclude_unset=True)
    )


@router.delete("/webhooks/{webhook_id}", response={204: None})
def delete_webhook(request: HttpRequest, webhook_id: str) -> Any:
    webhooks.delete_webhook(_webhook(request, webhook_id), access.actor_of(request).user)
    return Status(204, None)


@router.post("/webhooks/{webhook_id}/rotate", response=NewSecret)
def rotate_secret(request: HttpRequest, webhook_id: str) -> Any:
    """Another secret; the one before signs nothing more."""
    webhook = _webhook(request, webhook_id)
    webhooks.rotate_secret(webhook, access.actor_of(request).user)
    return _with_secret(request, webhook)


@router.post("/webhooks/{webhook_id}/test", response={201: DeliveryOut})
def test_webhook(request: HttpRequest, webhook_id: str) -> Any:
    """Send the event `ping`."""
    return Status(201, webhooks.send_test(_webhook(request, webhook_id)))


@router.get("/webhooks/{webhook_id}/deliveries", response=DeliveryPage)
def list_deliveries(
    request: HttpRequest, webhook_id: str, cursor: Cursor = None, limit: Limit = 50
) -> Any:
    """What was sent, the newest first; kept for 30 days."""
    return keyset(_webhook(request, webhook_id).deliveries.all(), ("-id",), cursor, limit)


@router.post("/webhooks/{webhook_id}/deliveries/{delivery_id}/again", response={201: DeliveryOut})
def send_again(request: HttpRequest, webhook_id: str, delivery_id: int) -> Any:
    """Send the same event once more."""
    rows = _webhook(request, webhook_id).deliveries.select_related("webhook")
    delivery = access.found_or_404(rows.filter(pk=delivery_id).first())
    return Status(201, webhooks.send_again(delivery))


def _webhook(request: HttpRequest, webhook_id: str) -> Webhook:
    rows = Webhook.objects.select_related("project")
    return access.get(rows, webhook_id, access.actor_of(request), Role.ADMIN)


def _with_secret(request: HttpRequest, webhook: Webhook) -> dict[str, Any]:
    idempotency.shows_secret(
        request, webhook.pk, f"POST /api/v1/webhooks/{webhook.pk}/rotate makes another secret."
    )
    return {**WebhookOut.from_orm(webhook).dict(), "secret": webhooks.secret_of(webhook)}
