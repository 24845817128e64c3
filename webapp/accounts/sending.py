"""Sending events to webhooks: signed, to no private address, again later where it fails."""

import hashlib
import hmac
import json
import socket
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db.models import F
from django.utils import timezone

from webapp.accounts.models import Delivery
from webapp.accounts.webhooks import is_public, secret_of

# After each try that failed; after the last one the delivery has failed.
WAITS = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=8),
)
TIMEOUT_S = 10.0  # without a byte
LONGEST_S = 20  # of a try, whatever comes
CLAIMED = timedelta(minutes=5)  # for a sender that died to be followed by another one


class UnsendableError(Exception):
    """Why a receiver was not reached, in words for the log of deliveries."""


def deliver(delivery_id: int) -> None:
    """Try one delivery that is due; a second caller at the same time does nothing.

    What else waits for a receiver that was not reached waits with it: one that hangs takes a
    sender from the others once a minute, not once an event.
    """
    now = timezone.now()
    mine = Delivery.objects.filter(pk=delivery_id)
    due = mine.filter(state="waiting", next_at__lte=now, webhook__disabled_at=None)
    # The try counts before it is made: what ends its sender is not tried for ever.
    if not due.update(next_at=now + CLAIMED, tries=F("tries") + 1):
        return
    delivery = mine.select_related("webhook").get()
    problem, status = "", None
    try:
        if delivery.tries > len(WAITS) + 1:
            raise UnsendableError("Every try was cut short: it takes too long to answer.")
        status = send(delivery)
        if not 200 <= status < 300:
            problem = f"It answered {status}."
    except UnsendableError as error:
        problem = str(error)[:300]
        _hold_back(delivery)
    except SoftTimeLimitExceeded:
        problem = f"It did not end its answer within {LONGEST_S} s."
        _hold_back(delivery)
    now = timezone.now()
    changes: dict[str, Any] = {"status": status, "problem": problem}
    if not problem:
        changes |= {"state": "delivered", "ended_at": now}
    elif delivery.tries <= len(WAITS):
        changes["next_at"] = now + WAITS[delivery.tries - 1]
    else:
        changes |= {"state": "failed", "ended_at": now}
    mine.update(**changes)  # none where the webhook was removed meanwhile


def _hold_back(tried: Delivery) -> None:
    now = timezone.now()
    others = Delivery.objects.filter(webhook=tried.webhook_id, state="waiting", next_at__lte=now)
    others.exclude(pk=tried.pk).update(next_at=now + WAITS[0])


def send(delivery: Delivery) -> int:
    """POST a delivery; the status of the answer, whose body nobody reads.

    Raises UnsendableError. The address is resolved once and connected to as it was checked, so
    that a name cannot point elsewhere a moment later.
    """
    parts = urlsplit(delivery.webhook.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = address_of(host, port)
    shown = f"[{address}]" if ":" in address else address
    target = f"{parts.scheme}://{shown}:{port}{parts.path or '/'}"
    body = body_of(delivery)
    headers = {
        "Host": parts.netloc,
        "Content-Type": "application/json",
        "User-Agent": "Caravan",
        "X-Caravan-Event": delivery.event,
        "X-Caravan-Delivery": str(delivery.pk),
        "X-Caravan-Signature": signature(
            secret_of(delivery.webhook), int(timezone.now().timestamp()), body
        ),
    }
    try:
        with (
            httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client,
            client.stream(
                "POST",
                target + (f"?{parts.query}" if parts.query else ""),
                content=body,
                headers=headers,
                extensions={"sni_hostname": host},
            ) as answer,
        ):
            return answer.status_code
    except httpx.TimeoutException:
        raise UnsendableError(f"It did not answer within {TIMEOUT_S:.0f} s.") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnsendableError(f"It was not reached: {error}") from None


def address_of(host: str, port: int) -> str:
    """An address of the host. Raises UnsendableError where one of them is private, unless the
    host is listed: a project's admin must not reach services that only this machine sees."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter for what no name can be
        raise UnsendableError(f"{host} has no address: {error}") from None
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if host not in settings.CARAVAN_WEBHOOK_HOSTS:
        for address in addresses:
            if not is_public(address):
                raise UnsendableError(
                    f"{host} leads to the private address {address}. "
                    "List the host in CARAVAN_WEBHOOK_HOSTS where that is meant."
                )
    return addresses[0]


def body_of(delivery: Delivery) -> bytes:
    body = {"event": delivery.event, "at": delivery.created_at.isoformat(), **delivery.body}
    return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()


def signature(secret: str, at: int, body: bytes) -> str:
    """`t=<Unix seconds>,v1=<HMAC-SHA256 of "t.body" in hex>`: a receiver refuses old ones."""
    signed = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"
