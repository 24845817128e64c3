"""Who may hold a live connection, and when it ends with what allowed it."""

from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.db import OperationalError
from django.utils import timezone

from tests.webapp.monitoring.sockets import ORIGIN, Open, handshake, store
from tests.webapp.support import Driver, metrics
from webapp.accounts import services as accounts
from webapp.accounts.models import ApiToken, Membership, User
from webapp.experiments import services
from webapp.monitoring import consumers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([ORIGIN], 401),
        ([(b"authorization", b"Bearer cvn_guess_guess")], 401),
        ([(b"cookie", b"caravan_session=guess")], 401),
        ([(b"origin", b"http://evil.example")], 403),
        ([(b"origin", b"http://testserver:81")], 403),
        ([(b"origin", b"null")], 403),
    ],
)
async def test_without_a_session_the_handshake_is_refused(
    db: None, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    communicator = handshake(*headers)
    await communicator.send_input({"type": "websocket.connect"})
    answer = await communicator.receive_output(5)
    assert (answer["type"], answer["status"]) == ("websocket.http.response.start", status)


async def test_a_program_connects_with_its_token(opened: Open, owner: User, driver: Driver) -> None:
    _, text = await database_sync_to_async(accounts.create_token)(owner, "watch")
    socket = await opened(None, (b"authorization", f"Bearer {text}".encode()))
    await socket.subscribe(f"run.{driver.run.pk}")
    assert (await socket.until("state"))["run"]["id"] == driver.run.pk


@pytest.mark.parametrize("topic", ["run.{run}", "project.{project}", "run.nothing", "what", "."])
async def test_an_outsider_hears_nothing(
    opened: Open, outsider: User, driver: Driver, topic: str
) -> None:
    topic = topic.format(run=driver.run.pk, project=driver.run.project_id)
    socket = await opened(outsider)
    await socket.subscribe(topic)
    problem = await socket.until("problem")
    assert (problem["topic"], problem["status"]) == (topic, 404)
    await store(driver, metrics(1, 0, loss=1.0))
    assert await socket.communicator.receive_nothing(0.5)


async def test_who_leaves_the_project_hears_no_more(
    opened: Open, viewer: User, driver: Driver, monkeypatch: Any
) -> None:
    monkeypatch.setattr(consumers, "CHECK_EVERY_S", 0.1)
    socket = await opened(viewer)
    await socket.subscribe(f"run.{driver.run.pk}")
    await socket.until("state")
    await Membership.objects.filter(user=viewer).adelete()
    assert (await socket.until("problem"))["status"] == 404
    cursor = await store(driver, metrics(1, 0, loss=1.0))
    assert cursor and await socket.communicator.receive_nothing(0.5)


async def test_who_leaves_while_the_database_is_away_hears_no_more_once_it_is_back(
    opened: Open, viewer: User, driver: Driver, monkeypatch: Any
) -> None:
    looked: list[Any] = []

    def away(*of: Any) -> bool:
        looked.append(of)
        if len(looked) == 1:
            raise OperationalError("the server closed the connection")
        return valid(*of)

    valid = consumers._still_valid
    monkeypatch.setattr(consumers, "_still_valid", away)
    monkeypatch.setattr(consumers, "CHECK_EVERY_S", 0.1)
    socket = await opened(viewer)
    await socket.subscribe(f"run.{driver.run.pk}")
    await socket.until("state")
    await Membership.objects.filter(user=viewer).adelete()
    assert (await socket.until("problem"))["status"] == 404


@pytest.mark.parametrize("end", ["expired", "revoked", "removed"])
async def test_a_token_that_ends_ends_its_connection(
    opened: Open, owner: User, driver: Driver, monkeypatch: Any, end: str
) -> None:
    monkeypatch.setattr(consumers, "CHECK_EVERY_S", 0.1)
    token, text = await database_sync_to_async(accounts.create_token)(owner, "watch")
    socket = await opened(None, (b"authorization", f"Bearer {text}".encode()))
    rows, now = ApiToken.objects.filter(pk=token.pk), timezone.now()
    if end == "removed":
        await rows.adelete()
    else:
        await rows.aupdate(**{"expires_at" if end == "expired" else "revoked_at": now})
    closed = await socket.communicator.receive_output(5)
    assert (closed["type"], closed["code"]) == ("websocket.close", consumers.SIGNED_OUT)


async def test_who_signs_out_is_disconnected(
    opened: Open, viewer: User, driver: Driver, monkeypatch: Any
) -> None:
    monkeypatch.setattr(consumers, "CHECK_EVERY_S", 0.1)
    socket = await opened(viewer)
    await User.objects.filter(pk=viewer.pk).aupdate(is_active=False)
    closed = await socket.communicator.receive_output(5)
    assert (closed["type"], closed["code"]) == ("websocket.close", consumers.SIGNED_OUT)


async def test_who_follows_a_run_that_is_deleted_is_told_that_it_is_gone(
    opened: Open, owner: User, driver: Driver, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(consumers, "CHECK_EVERY_S", 0.3)
    socket = await opened(owner)
    topic = f"run.{driver.run.pk}"
    await socket.subscribe(topic)
    await socket.until("state")

    def delete() -> None:
        services.fail_attempt(driver.attempt.pk, "over")
        services.archive(driver.run.pk, owner)
        services.delete_run(driver.run.pk, owner)

    await database_sync_to_async(delete)()
    problem = await socket.until("problem")
    assert (problem["topic"], problem["status"]) == (topic, 404)
    assert "no update" not in caplog.text
