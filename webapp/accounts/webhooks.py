"""Webhooks of a project, and the events that wait to be sent (an outbox in the database)."""

import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from webapp import queue
from webapp.accounts import access
from webapp.accounts.audit import record
from webapp.accounts.credentials import digest
from webapp.accounts.models import Delivery, Project, User, Webhook
from webapp.problems import conflict, invalid_field

EVENTS = (
    "run.running",
    "run.succeeded",
    "run.failed",
    "run.stopped",
    "run.interrupted",
    "run.lost",
)
TEST = "ping"
MAX_WEBHOOKS = 20
_AT_ONCE = 50
_EXPIRES_S = 5.0  # what was not begun by then is enqueued again
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def secret_of(webhook: Webhook) -> str:
    """What the receiver checks signatures with."""
    return "whs_" + digest("webhook", f"{webhook.pk}.{webhook.serial}")


@transaction.atomic
def create_webhook(project: Project, user: User, url: str, events: Sequence[str]) -> Webhook:
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    if project.webhooks.count() >= MAX_WEBHOOKS:
        raise conflict(f"A project has at most {MAX_WEBHOOKS} webhooks: remove one first.")
    webhook = Webhook.objects.create(
        project=project, url=_clean_url(url), events=_clean_events(events), created_by=user
    )
    record("webhook.create", webhook.pk, user=user, project=project, url=webhook.url)
    return webhook


@transaction.atomic
def edit_webhook(
    webhook: Webhook,
    user: User,
    *,
    url: str | None = None,
    events: Sequence[str] | None = None,
    enabled: bool | None = None,
) -> Webhook:
    """Change what is given. Events that wait for one that is turned off are sent when it is on."""
    _lock(webhook)
    if url is not None:
        webhook.url = _clean_url(url)
    if events is not None:
        webhook.events = _clean_events(events)
    if enabled is not None:
        webhook.disabled_at = None if enabled else webhook.disabled_at or timezone.now()
    webhook.save()
    record("webhook.edit", webhook.pk, user=user, project=webhook.project, url=webhook.url)
    return webhook


@transaction.atomic
def rotate_secret(webhook: Webhook, user: User) -> str:
    """The new secret; signatures are made with it from now on."""
    _lock(webhook)
    webhook.serial += 1
    webhook.save(update_fields=["serial"])
    record("webhook.rotate", webhook.pk, user=user, project=webhook.project)
    return secret_of(webhook)


@transaction.atomic
def delete_webhook(webhook: Webhook, user: User) -> None:
    record("webhook.delete", webhook.pk, user=user, project=webhook.project, url=webhook.url)
    webhook.delete()


@transaction.atomic
def send_test(webhook: Webhook) -> Delivery:
    if webhook.disabled_at is not None:
        raise conflict("This webhook is turned off: turn it on to send it something.")
    return _enqueue(webhook, TEST, {"webhook": webhook.pk})


@transaction.atomic
def send_again(delivery: Delivery) -> Delivery:
    """The same event once more, as a delivery of its own."""
    if delivery.webhook.disabled_at is not None:
        raise conflict("This webhook is turned off: turn it on to send it something.")
    if delivery.state == "waiting":
        raise conflict("This event is still on its way.")
    return _enqueue(delivery.webhook, delivery.event, delivery.body)


def notify(project: Project, event: str, body: dict[str, Any]) -> None:
    """Within a transaction: queue an event for every webhook of the project that asked for it."""
    wanted = Webhook.objects.filter(project=project, events__contains=[event], disabled_at=None)
    for webhook in wanted:
        _enqueue(webhook, event, {"project": {"id": project.pk, "name": project.name}, **body})


def send_due() -> None:
    """Enqueue what should have been sent by now: the reconciler's part."""
    due = Delivery.objects.filter(
        state="waiting", next_at__lte=timezone.now(), webhook__disabled_at=None
    )
    for pk in due.order_by("next_at").values_list("pk", flat=True)[:_AT_ONCE]:
        queue.send("caravan.deliver", str(pk), expires=_EXPIRES_S)


def _lock(webhook: Webhook) -> None:
    """Until the transaction ends, and as it is now: who makes another secret meanwhile must not
    have that undone. Raises Http404."""
    rows = Webhook.objects.select_for_update(no_key=True)
    access.found_or_404(rows.filter(pk=webhook.pk).first())
    webhook.refresh_from_db(fields=["url", "events", "serial", "disabled_at"])


def _enqueue(webhook: Webhook, event: str, body: dict[str, Any]) -> Delivery:
    delivery = Delivery.objects.create(
        webhook=webhook, event=event, body=body, next_at=timezone.now()
    )
    queue.send("caravan.deliver", str(delivery.pk))
    return delivery


def _clean_events(events: Sequence[str]) -> list[str]:
    if unknown := [event for event in events if event not in EVENTS]:
        raise invalid_field("events", f"There is no event {unknown[0]!r}: use {', '.join(EVENTS)}.")
    if not events:
        raise invalid_field("events", "Choose one event or more.")
    return [event for event in EVENTS if event in events]


def _clean_url(url: str) -> str:
    """Raises RefusedError for what cannot be an address of a receiver; see `sending.address_of`."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise invalid_field("url", f"{url[:100]!r} is no address.") from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise invalid_field("url", "Give the whole address: https://host/path.")
    if len(url) > 500 or not url.isascii() or any(c.isspace() or c < "!" for c in url):
        raise invalid_field("url", "An address has at most 500 characters, all of them ASCII.")
    if parts.username or parts.password:
        raise invalid_field("url", "Leave out user and password: deliveries are signed instead.")
    if host in settings.CARAVAN_WEBHOOK_HOSTS:
        return url
    if parts.scheme != "https":
        raise invalid_field("url", f"Use https, or list {host} in CARAVAN_WEBHOOK_HOSTS.")
    if host == "localhost" or not _may_be_public(host):
        raise invalid_field("url", f"{host} is private: list it in CARAVAN_WEBHOOK_HOSTS.")
    return url


def _may_be_public(host: str) -> bool:
    """Of a name only its addresses tell."""
    try:
        return is_public(host)
    except ValueError:
        return True


def is_public(address: str) -> bool:
    """Whether an IP address is reached through the internet, and so is what it stands for: some
    of version 6 are led on to one of version 4. Raises ValueError for what is no address."""
    given = ipaddress.ip_address(address)
    if isinstance(given, ipaddress.IPv4Address):
        return given.is_global
    inner = given.ipv4_mapped or given.sixtofour
    if given in NAT64:
        inner = ipaddress.IPv4Address(int(given) & 0xFFFFFFFF)
    return given.is_global and (inner is None or inner.is_global)
