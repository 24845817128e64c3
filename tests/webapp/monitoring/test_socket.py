"""The live socket: what it says equals what a reload reads, without losing or repeating a point."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from tests.webapp.support import Api, Driver, metrics
from webapp import live
from webapp.accounts import services as accounts
from webapp.accounts.models import ApiToken, Membership, User
from webapp.asgi import application
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.monitoring import consumers, feeds, queries
from webapp.monitoring.ingest import parsing, storing
from webapp.monitoring.models import Point

pytestmark = pytest.mark.django_db(transaction=True)
ORIGIN = (b"origin", b"http://testserver")
HOST = (b"host", b"testserver")

Open = Callable[..., Awaitable["Socket"]]


def handshake(*headers: tuple[bytes, bytes]) -> ApplicationCommunicator:
    scope = {
        "type": "websocket",
        "path": "/ws/v1/",
        "query_string": b"",
        "headers": [HOST, *headers],
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }
    return ApplicationCommunicator(application, scope)


class Socket:
    """A page's end of the socket; keeps every message."""

    def __init__(self, communicator: ApplicationCommunicator) -> None:
        self.communicator = communicator
        self.messages: list[dict[str, Any]] = []

    async def close(self) -> None:
        await self.communicator.send_input({"type": "websocket.disconnect", "code": 1001})
        await self.communicator.wait(2)

    async def subscribe(self, topic: str, after: int = 0) -> None:
        message = {"type": "subscribe", "topic": topic, "after": after}
        await self.say(json.dumps(message))

    async def say(self, text: str) -> None:
        await self.communicator.send_input({"type": "websocket.receive", "text": text})

    async def next(self, timeout: float = 8) -> dict[str, Any]:
        sent = await self.communicator.receive_output(timeout)
        self.messages.append(json.loads(sent["text"]))
        return self.messages[-1]

    async def until(self, kind: str, cursor: int = 0) -> dict[str, Any]:
        """The next message of a kind that leads at least to this cursor."""
        while True:
            message = await self.next()
            if message["kind"] == kind and message.get("cursor", 0) >= cursor:
                return message

    async def reach(self, cursor: int) -> None:
        while not any(m.get("cursor", -1) >= cursor for m in self.messages):
            await self.next()

    def points(self) -> list[tuple[str, int, float]]:
        return [
            (series["name"], step, value)
            for message in self.messages
            if message["kind"] == "series"
            for series in message["series"]
            for step, _, value in series["points"]
        ]


def session_cookie(user: User) -> bytes:
    client = Client()
    client.force_login(user)
    return f"caravan_session={client.cookies['caravan_session'].value}".encode()


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    sockets: list[Socket] = []

    async def opened(user: User | None = None, *headers: tuple[bytes, bytes]) -> Socket:
        sent = list(headers) or [ORIGIN]
        if user is not None:
            sent.append((b"cookie", await database_sync_to_async(session_cookie)(user)))
        communicator = handshake(*sent)
        await communicator.send_input({"type": "websocket.connect"})
        assert (await communicator.receive_output(5))["type"] == "websocket.accept"
        sockets.append(Socket(communicator))
        return sockets[-1]

    yield opened
    for socket in sockets:
        await socket.close()
    assert not feeds._feeds


async def store(driver: Driver, *items: Any) -> int:
    """Store items as ingest does, hint included; the run's cursor afterwards."""
    batch = parsing.parse(json.dumps({"items": items}).encode())
    await database_sync_to_async(storing.store)(driver.token, batch)
    await live.publish(live.run_topic(driver.run.pk))
    run = await Run.objects.aget(pk=driver.run.pk)
    return run.cursor


async def test_it_pushes_every_point_once_in_order(
    opened: Open, owner: User, driver: Driver
) -> None:
    socket = await opened(owner)
    await socket.subscribe(f"run.{driver.run.pk}")
    cursor = 0
    for step in range(12):
        cursor = await store(driver, metrics(step + 1, step, loss=float(step)))
        await asyncio.sleep(0.03)
    await socket.reach(cursor)
    assert socket.points() == [("loss", step, float(step)) for step in range(12)]


async def test_a_reconnect_goes_on_where_the_page_stood(
    opened: Open, owner: User, driver: Driver
) -> None:
    first = await opened(owner)
    await first.subscribe(f"run.{driver.run.pk}")
    seen = await store(driver, metrics(1, 0, loss=0.0))
    await first.reach(seen)
    await first.close()
    cursor = await store(driver, metrics(2, 1, loss=1.0), metrics(3, 2, loss="NaN"))
    second = await opened(owner)
    await second.subscribe(f"run.{driver.run.pk}", after=seen)
    await second.reach(cursor)
    assert first.points() == [("loss", 0, 0.0)]
    assert second.points() == [("loss", 1, 1.0), ("loss", 2, "NaN")]


async def test_too_many_points_are_fetched_and_equal_the_reload(
    opened: Open, owner: User, driver: Driver
) -> None:
    items = [metrics(n + 1, n, loss=n / 7) for n in range(queries.LIVE_POINTS + 1)]
    cursor = await store(driver, *items)
    socket = await opened(owner)
    await socket.subscribe(f"run.{driver.run.pk}")
    assert (await socket.until("fetch"))["cursor"] == cursor
    assert socket.points() == []
    api = await database_sync_to_async(Api)(owner)
    path = f"runs/{driver.run.pk}/points?after=0"
    fetched = (await database_sync_to_async(api)("GET", path)).json()
    assert fetched["cursor"] == cursor
    stored = Point.objects.filter(series__run=driver.run).order_by("step")
    assert [tuple(point) for point in fetched["series"][0]["points"]] == [
        row async for row in stored.values_list("step", "at", "value")
    ]


async def test_a_lost_hint_heals(opened: Open, owner: User, driver: Driver) -> None:
    socket = await opened(owner)
    await socket.subscribe(f"run.{driver.run.pk}")
    await socket.until("state")
    batch = parsing.parse(json.dumps({"items": [metrics(1, 0, loss=1.0)]}).encode())
    await database_sync_to_async(storing.store)(driver.token, batch)  # and nobody is told
    await socket.until("series")
    assert socket.points() == [("loss", 0, 1.0)]


async def test_it_repeats_its_cursor(opened: Open, owner: User, driver: Driver) -> None:
    cursor = await store(driver, metrics(1, 0, loss=1.0))
    socket = await opened(owner)
    await socket.subscribe(f"run.{driver.run.pk}", after=cursor)
    await socket.until("state")
    assert (await socket.until("cursor"))["cursor"] == cursor
    assert socket.points() == []


async def test_it_merges_to_four_messages_a_second(
    opened: Open, owner: User, driver: Driver
) -> None:
    socket = await opened(owner)
    await socket.subscribe(f"run.{driver.run.pk}")
    loop = asyncio.get_running_loop()
    began, cursor = loop.time(), 0
    for step in range(25):
        cursor = await store(driver, metrics(step + 1, step, loss=1.0))
    await socket.reach(cursor)
    series = [m for m in socket.messages if m["kind"] == "series"]
    assert len(series) <= 4 * (loop.time() - began) + 1
    assert len(socket.points()) == 25


async def test_only_the_newest_state_and_pool_count(
    opened: Open, owner: User, driver: Driver
) -> None:
    pool = {
        "kind": "pool", "source": "pool", "trainer_version": 1, "produced": 9, "consumed": 4,
        "waiting": 3, "discarded": {"stale": 2}, "categories": {"3 hops": 3}, "target": {},
        "staleness": {"0": 3}, "oldest_s": 1.0,
    }  # fmt: skip
    logs = [
        {"kind": "log", "source": "driver", "seq": n, "at": n, "text": str(n)} for n in (1, 2, 3)
    ]
    pools = [{**pool, "seq": n, "at": float(n), "consumed": n} for n in (1, 2, 3)]
    cursor = await store(driver, *logs, *pools)
    socket = await opened(owner)
    await socket.subscribe(f"run.{driver.run.pk}")
    await socket.reach(cursor)
    shown = {m["kind"]: m for m in socket.messages}
    assert shown["pool"]["pool"]["consumed"] == 3
    assert [row["text"] for row in shown["log"]["rows"]] == ["1", "2", "3"]
    assert shown["state"]["run"]["state"] == "running"


async def test_messages_before_the_last_do_not_advance_the_cursor(
    opened: Open, owner: User, driver: Driver
) -> None:
    """Who loses the connection between them asks again from the old cursor."""
    log = {"kind": "log", "source": "driver", "seq": 1, "at": 1.0, "text": "hello"}
    cursor = await store(driver, log, metrics(1, 0, loss=1.0))
    socket = await opened(owner)
    await socket.subscribe(f"run.{driver.run.pk}")
    await socket.reach(cursor)
    assert [m["cursor"] for m in socket.messages][:-1] == [0] * (len(socket.messages) - 1)
    assert socket.messages[-1]["kind"] == "series"


async def test_twenty_pages_share_one_read(
    opened: Open, owner: User, driver: Driver, monkeypatch: Any
) -> None:
    reads: list[int] = []

    def counted(topic: str, after: int) -> Any:
        reads.append(after)
        return original(topic, after)

    original = feeds.read
    monkeypatch.setattr(feeds, "read", counted)
    sockets = [await opened(owner) for _ in range(20)]
    for socket in sockets:
        await socket.subscribe(f"run.{driver.run.pk}")
    await asyncio.gather(*(socket.until("state") for socket in sockets))
    reads.clear()
    cursor = await store(driver, metrics(1, 0, loss=1.0))
    await asyncio.gather(*(socket.reach(cursor) for socket in sockets))
    assert all(socket.points() == [("loss", 0, 1.0)] for socket in sockets)
    assert len(reads) <= 3


async def test_a_page_that_does_not_read_costs_no_memory(
    opened: Open, owner: User, driver: Driver, monkeypatch: Any
) -> None:
    never = asyncio.Event()

    async def stuck(self: Any, text_data: str) -> None:
        await never.wait()

    slow, fast = await opened(owner), await opened(owner)
    consumer = None
    original = consumers.LiveSocket.send

    async def first_is_stuck(self: Any, text_data: str = "", **more: Any) -> None:
        nonlocal consumer
        consumer = consumer or self
        await (stuck(self, text_data) if self is consumer else original(self, text_data, **more))

    monkeypatch.setattr(consumers.LiveSocket, "send", first_is_stuck)
    await slow.subscribe(f"run.{driver.run.pk}")
    while consumer is None:
        await asyncio.sleep(0.02)
    await fast.subscribe(f"run.{driver.run.pk}")
    cursor = 0
    for step in range(10):
        cursor = await store(driver, metrics(step + 1, step, loss=1.0))
        await fast.reach(cursor)
    assert consumer.outbox.qsize() <= 1


async def test_a_project_hears_of_its_runs(opened: Open, owner: User, driver: Driver) -> None:
    socket = await opened(owner)
    await socket.subscribe(f"project.{driver.run.project_id}")
    first = await socket.until("state")
    assert [(run["id"], run["state"]) for run in first["runs"]] == [(driver.run.pk, "running")]
    await database_sync_to_async(services.stop)(driver.run.pk, owner)
    second = await socket.until("state")
    assert second["runs"][0]["state"] == "stopping"


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


@pytest.mark.parametrize(
    "text",
    ["", "[]", "nonsense", '{"type": "subscribe"}', '{"type": 3, "topic": "cluster"}',
     '{"type": "subscribe", "topic": "cluster", "after": "x"}',
     '{"type": "subscribe", "topic": "cluster", "after": -1}',
     '{"type": "subscribe", "topic": 5}'],
)  # fmt: skip
async def test_a_message_that_makes_no_sense_is_answered(
    opened: Open, owner: User, text: str
) -> None:
    socket = await opened(owner)
    await socket.say(text)
    assert (await socket.until("problem"))["status"] == 400


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
