"""From an event in a training run to a browser: 20 websockets follow a real run while it trains.

Every point carries the moment at which the run measured it, and the sockets are clients on the
same machine, with the same clock: what is measured is spool, shipper, ingest, database, hint, read
and socket, whatever the training leaves of the cores.
"""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from bench.figures import Figure, Options
from caravan import Client
from workers.local.places import UserError, find_places
from workers.local.scratch import scratch_stack
from workers.local.state import read_state

RECIPE = "kg-search"
SOCKETS = 20
WATCHED_S = 60.0
FIRST_POINT_S = 300.0  # until the run trains: synthesis comes before
LEAST_POINTS = 200
METRIC = "event_to_browser_p95_ms"


@dataclass
class Seen:
    """What the sockets received: milliseconds from measuring to arrival, by point and socket."""

    late_ms: list[float] = field(default_factory=list)
    points: set[tuple[int, int]] = field(default_factory=set)  # (series, step)
    stages: set[str] = field(default_factory=set)


def run(options: Options) -> list[Figure]:
    with _server() as (client, where):
        launched = client.launch(recipe=RECIPE, name="bench live", tags=["bench"])
        try:
            _await_points(client, launched["id"])
            seen = asyncio.run(_watch(client, launched["id"]))
        finally:
            with contextlib.suppress(Exception):
                client.stop(launched["id"])
        return [_figure(seen, where)]


def _figure(seen: Seen, where: str) -> Figure:
    setup = (
        f"{SOCKETS} sockets for {WATCHED_S:.0f} s on {where} while {RECIPE} ran its stage "
        f"{', '.join(sorted(seen.stages)) or 'unknown'}; {len(seen.points):,} points, "
        f"{len(seen.late_ms):,} arrivals"
    )
    value = None
    if len(seen.points) >= LEAST_POINTS:
        late = sorted(seen.late_ms)
        value = late[math.ceil(0.95 * len(late)) - 1]
        setup += f"; median {late[len(late) // 2]:.0f} ms, worst {late[-1]:.0f} ms"
    else:
        setup += f": too few, {LEAST_POINTS} are needed"
    return Figure("live", METRIC, value, "ms", bar="at most 500", setup=setup)


@contextlib.contextmanager
def _server() -> Iterator[tuple[Client, str]]:
    """The stack that runs here, or one of our own in a temporary folder."""
    places = find_places()
    state = read_state(places)
    if state.ready and state.supervisor is not None and state.supervisor.find() is not None:
        with _client(places.secret("cli_token.json")) as client:
            yield client, "the running stack"
        return
    with (
        scratch_stack(durable=True) as stack,
        _client(stack.places.secret("cli_token.json")) as own,
    ):
        yield own, "its own stack"


def _client(access: Path) -> Client:
    data = json.loads(access.read_text())
    return Client(data["url"], data["token"])


def _await_points(client: Client, run_id: str) -> None:
    """Return when the run reports points. Raises UserError where it ends or never does."""
    deadline = time.monotonic() + FIRST_POINT_S
    while time.monotonic() < deadline:
        found = client.run(run_id)
        if found["ended_at"]:
            raise UserError(f"The run {found['state']} before it trained: {found['state_reason']}")
        if any(one["axis"] == "trainer_step" for one in client.series(run_id)):
            return
        time.sleep(1.0)
    raise UserError(f"The run has not begun to train within {FIRST_POINT_S:.0f} s.")


async def _watch(client: Client, run_id: str) -> Seen:
    seen = Seen()
    after = int(client.run(run_id)["cursor"])
    before = time.time()
    until = time.monotonic() + WATCHED_S
    await asyncio.gather(
        *(_follow(client, run_id, after, before, until, seen) for _ in range(SOCKETS)),
        _note_stages(client, run_id, until, seen),
    )
    return seen


async def _follow(
    client: Client, run_id: str, after: int, before: float, until: float, seen: Seen
) -> None:
    """One browser: subscribe, and note how late each point arrives that was measured meanwhile."""
    address = client.url.replace("http", "ws", 1) + "/ws/v1/"
    headers = {"Authorization": client.http.authorization}
    async with connect(address, additional_headers=headers, max_size=2**24) as socket:
        topic = f"run.{run_id}"
        await socket.send(json.dumps({"type": "subscribe", "topic": topic, "after": after}))
        while (left := until - time.monotonic()) > 0:
            try:
                message: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), left))
            except TimeoutError:
                return
            now = time.time()
            if message["kind"] == "fetch":
                raise UserError("A socket was told to fetch: it was given too much at once.")
            for series in message.get("series", ()):
                for step, at, _ in series["points"]:
                    if at >= before:
                        seen.late_ms.append(1000 * (now - at))
                        seen.points.add((series["id"], step))


async def _note_stages(client: Client, run_id: str, until: float, seen: Seen) -> None:
    while time.monotonic() < until:
        found = await asyncio.to_thread(client.run, run_id)
        seen.stages |= {stage["name"] for stage in found["stages"] if stage["state"] == "running"}
        await asyncio.sleep(5.0)
