"""A page's end of the live socket, over the whole ASGI application."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from django.test import Client

from tests.webapp.support import Driver
from webapp import live
from webapp.accounts.models import User
from webapp.asgi import application
from webapp.experiments.models import Run
from webapp.monitoring.ingest import parsing, storing

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


async def store(driver: Driver, *items: Any) -> int:
    """Store items as ingest does, hint included; the run's cursor afterwards."""
    batch = parsing.parse(json.dumps({"items": items}).encode())
    await database_sync_to_async(storing.store)(driver.token, batch)
    await live.publish(live.run_topic(driver.run.pk))
    run = await Run.objects.aget(pk=driver.run.pk)
    return run.cursor
