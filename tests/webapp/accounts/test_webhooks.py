"""Webhooks are told of runs, signed, again where it failed, and never at a private address."""

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.utils import timezone

from tests.webapp.support import Api, start
from webapp import queue
from webapp.accounts import sending, webhooks
from webapp.accounts.models import AuditEntry, Delivery, Project, User, Webhook
from webapp.experiments import services
from webapp.problems import RefusedError
from workers.control import tasks
from workers.local.compose import compose_layout
from workers.local.processes import processes

pytestmark = pytest.mark.django_db


class Receiver(HTTPServer):
    """Keeps what it is sent; answers `status`."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_port}/hook?team=1"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(({**self.headers, "path": self.path}, body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "http://169.254.169.254/")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.CARAVAN_WEBHOOK_HOSTS = ["localhost"]
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def webhook(project: Project, owner: User, receiver: Receiver) -> Webhook:
    return webhooks.create_webhook(project, owner, receiver.url, ["run.failed", "run.running"])


def send_all() -> None:
    for pk in Delivery.objects.filter(state="waiting").values_list("pk", flat=True):
        Delivery.objects.filter(pk=pk).update(next_at=timezone.now())
        sending.deliver(pk)


def test_it_tells_of_what_a_run_does_and_signs_it(
    webhook: Webhook, receiver: Receiver, run: Any
) -> None:
    driver = start(run)
    services.fail_attempt(driver.attempt.pk, "out of memory <b>")
    send_all()
    assert [json.loads(body)["event"] for _, body in receiver.got] == ["run.running", "run.failed"]
    headers, body = receiver.got[1]
    told = json.loads(body)
    assert told["project"] == {"id": run.project_id, "name": "Project"}
    assert told["run"]["id"] == run.pk and told["run"]["reason"] == "out of memory <b>"
    assert told["run"]["url"].endswith(f"/runs/{run.pk}/")
    assert headers["path"] == "/hook?team=1"
    assert headers["Host"] == f"localhost:{receiver.server_port}"
    at, _, signed = headers["X-Caravan-Signature"].partition(",v1=")
    wanted = hmac.new(
        webhooks.secret_of(webhook).encode(), at[2:].encode() + b"." + body, hashlib.sha256
    )
    assert signed == wanted.hexdigest()
    assert {d.state for d in webhook.deliveries.all()} == {"delivered"}


def test_it_is_told_of_nothing_else(webhook: Webhook, run: Any, owner: User) -> None:
    other = Project.objects.create(team=run.project.team, name="Other")
    webhooks.create_webhook(other, owner, webhook.url, list(webhooks.EVENTS))
    services.stop(run.pk, owner)
    assert not Delivery.objects.exists()


def test_what_is_rolled_back_is_not_told(webhook: Webhook, project: Project) -> None:
    from django.db import transaction

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        webhooks.notify(project, "run.failed", {})
        raise ZeroDivisionError
    assert not Delivery.objects.exists()


def test_it_tries_again_ever_later_and_then_gives_up(webhook: Webhook, receiver: Receiver) -> None:
    receiver.status = 500
    delivery = webhooks.send_test(webhook)
    waits = []
    for _ in range(len(sending.WAITS) + 1):
        send_all()
        delivery.refresh_from_db()
        waits.append((delivery.next_at - timezone.now()).total_seconds())
    assert delivery.state == "failed" and delivery.tries == len(receiver.got) == 6
    assert delivery.status == 500 and delivery.problem == "It answered 500."
    assert waits[:5] == sorted(waits[:5]) and waits[0] > 50 and waits[4] > 7 * 3600
    assert webhooks.send_again(delivery).state == "waiting"


def test_what_waits_for_a_receiver_that_is_not_reached_waits_with_it(
    webhook: Webhook, receiver: Receiver, project: Project, owner: User
) -> None:
    gone, other = [webhooks.create_webhook(project, owner, url, ["run.failed"]) for url in (
        "http://localhost:1/", receiver.url
    )]  # fmt: skip
    first, second = webhooks.send_test(gone), webhooks.send_test(gone)
    third = webhooks.send_test(other)
    for delivery in (first, second, third):
        sending.deliver(delivery.pk)
        delivery.refresh_from_db()
    assert first.tries == 1 and "not reached" in first.problem
    assert second.tries == 0 and second.next_at > timezone.now()
    assert third.state == "delivered"


def test_an_answer_that_never_ends_is_ended_and_tried_again(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_long(_: Delivery) -> int:
        raise SoftTimeLimitExceeded  # as Celery does in the process that sends

    monkeypatch.setattr(sending, "send", too_long)
    delivery = webhooks.send_test(webhook)
    sending.deliver(delivery.pk)
    delivery.refresh_from_db()
    assert delivery.state == "waiting" and delivery.next_at > timezone.now()
    assert "within 20 s" in delivery.problem


def test_sending_has_a_queue_and_a_limit_of_its_own() -> None:
    route = queue.app.amqp.router.route({}, "caravan.deliver")
    assert route["queue"].name == "webhooks"
    assert tasks.deliver_webhook.soft_time_limit == sending.LONGEST_S
    worker = next(s for s in processes(compose_layout()) if s.name == "webhooks")
    assert worker.argv[worker.argv.index("--queues") + 1] == "webhooks"


def test_two_senders_send_once(webhook: Webhook, receiver: Receiver) -> None:
    delivery = webhooks.send_test(webhook)
    sending.deliver(delivery.pk)
    sending.deliver(delivery.pk)
    assert len(receiver.got) == 1


def test_a_try_that_ends_its_sender_counts(
    webhook: Webhook, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = webhooks.send_test(webhook)
    with monkeypatch.context() as patch:
        patch.setattr(sending, "send", lambda _: 1 / 0)
        for _ in range(len(sending.WAITS) + 1):
            with pytest.raises(ZeroDivisionError):
                send_all()
    send_all()
    delivery.refresh_from_db()
    assert delivery.state == "failed" and "cut short" in delivery.problem and receiver.got == []


def test_a_webhook_that_is_removed_while_it_is_told_leaves_nothing(
    webhook: Webhook, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = webhooks.send_test(webhook)
    monkeypatch.setattr(sending, "send", lambda _: webhooks.delete_webhook(webhook, owner) or 204)
    sending.deliver(delivery.pk)
    assert not Delivery.objects.exists()


@pytest.mark.parametrize("url", [f"https://{'a' * 70}.com/", "https://localhost/\x7f"])
def test_an_address_that_cannot_be_called_is_told(
    webhook: Webhook, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Webhook.objects.filter(pk=webhook.pk).update(url=url)
    delivery = webhooks.send_test(webhook)
    sending.deliver(delivery.pk)
    delivery.refresh_from_db()
    assert delivery.state == "waiting" and delivery.problem.startswith(("It was not", "aaaa"))


def test_editing_does_not_undo_a_secret_made_meanwhile(webhook: Webhook, owner: User) -> None:
    seen = Webhook.objects.get(pk=webhook.pk)
    secret = webhooks.rotate_secret(webhook, owner)
    webhooks.edit_webhook(seen, owner, events=["run.lost"])
    assert webhooks.secret_of(Webhook.objects.get(pk=webhook.pk)) == secret


def test_it_follows_no_redirect(webhook: Webhook, receiver: Receiver) -> None:
    receiver.status = 302
    delivery = webhooks.send_test(webhook)
    sending.deliver(delivery.pk)
    delivery.refresh_from_db()
    assert delivery.state == "waiting" and delivery.status == 302 and len(receiver.got) == 1


def test_one_that_is_turned_off_gets_nothing(
    webhook: Webhook, receiver: Receiver, owner: User
) -> None:
    delivery = webhooks.send_test(webhook)
    webhooks.edit_webhook(webhook, owner, enabled=False)
    sending.deliver(delivery.pk)
    webhooks.notify(webhook.project, "run.failed", {})
    assert receiver.got == [] and webhook.deliveries.count() == 1
    with pytest.raises(RefusedError, match="turned off"):
        webhooks.send_test(webhook)


def test_a_name_that_leads_to_a_private_address_is_not_connected_to(
    webhook: Webhook, receiver: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CARAVAN_WEBHOOK_HOSTS = []
    privates = "127.0.0.1 10.1.2.3 169.254.169.254 ::1 fd00::1 100.64.0.1 ::ffff:10.1.2.3"
    for private in [*privates.split(), "64:ff9b::7f00:1", "2002:7f00:1::"]:
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_, found=private, **__: [(0, 0, 0, "", (found, 80))]
        )
        delivery = webhooks.send_test(webhook)
        sending.deliver(delivery.pk)
        delivery.refresh_from_db()
        assert "private address" in delivery.problem and private in delivery.problem
    assert receiver.got == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "whole address"),
        ("ftp://example.com/", "whole address"),
        ("https://", "whole address"),
        ("https://example.com:x/", "no address"),
        ("http://example.com/", "Use https"),
        ("https://127.0.0.1/", "is private"),
        ("https://[::1]/", "is private"),
        ("https://localhost/", "is private"),
        ("https://user:pass@example.com/", "Leave out user"),
        ("https://example.com/\r\nX: y", "ASCII"),
        ("https://example.com/" + "x" * 500, "at most 500"),
    ],
)
def test_it_refuses_an_address_that_cannot_be_one(
    url: str, said: str, project: Project, owner: User
) -> None:
    with pytest.raises(RefusedError, match=said) as found:
        webhooks.create_webhook(project, owner, url, ["run.failed"])
    assert found.value.errors[0].path == "url"


def test_the_api_shows_a_secret_once(api: Api, project: Project) -> None:
    path = f"projects/{project.pk}/webhooks"
    body = {"url": "https://example.com/hook", "events": ["run.failed"]}
    made = api("POST", path, body)
    assert made.status_code == 201
    secret, pk = made.json()["secret"], made.json()["id"]
    assert secret == webhooks.secret_of(Webhook.objects.get())
    assert "secret" not in api("GET", path).json()[0]
    assert api("POST", f"webhooks/{pk}/rotate").json()["secret"] != secret
    assert api("PATCH", f"webhooks/{pk}", {"events": []}).status_code == 422
    assert api("PATCH", f"webhooks/{pk}", {"enabled": False}).json()["disabled_at"]
    assert api("POST", f"webhooks/{pk}/test").status_code == 409
    assert api("DELETE", f"webhooks/{pk}").status_code == 204
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))[-4:] == [
        "webhook.create", "webhook.rotate", "webhook.edit", "webhook.delete",
    ]  # fmt: skip


def test_its_page_adds_tests_and_removes(page: Any, project: Project) -> None:
    address = f"/projects/{project.pk}/webhooks/"
    wrong = page.post(address, {"url": "https://10.0.0.1/", "event": ["run.lost"]})
    assert wrong.status_code == 422 and "10.0.0.1 is private" in wrong.content.decode()
    made = page.post(address, {"url": "https://example.com/<b>", "event": ["run.lost"]})
    webhook = Webhook.objects.get()
    assert webhooks.secret_of(webhook) in made.content.decode()
    assert webhooks.secret_of(webhook) not in page.get(f"/webhooks/{webhook.pk}/").content.decode()
    page.post(f"/webhooks/{webhook.pk}/change", {"action": "test"})
    shown = page.get(f"/webhooks/{webhook.pk}/").content.decode()
    assert "ping" in shown and "example.com/&lt;b&gt;" in shown
    assert "waiting" in page.get(address).content.decode()
    page.post(f"/webhooks/{webhook.pk}/change", {"action": "delete"})
    assert not Webhook.objects.exists()
