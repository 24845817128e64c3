"""The live socket: what it says equals what a reload reads, without losing or repeating a point."""

import asyncio
import json
from typing import Any

import pytest
from channels.db import database_sync_to_async

from tests.webapp.monitoring.sockets import Open, store
from tests.webapp.support import Api, Driver, metrics
from webapp.accounts.models import User
from webapp.experiments import services
from webapp.monitoring import consumers, feeds, queries
from webapp.monitoring.ingest import parsing, storing
from webapp.monitoring.models import Point

pytestmark = pytest.mark.django_db(transaction=True)


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
