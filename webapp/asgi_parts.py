"""Small ASGI wrappers: a limit on request bodies, and background work for a process's life."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from contextlib import suppress
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]  # servers and frameworks type these apart

MAX_BODY_BYTES = 65 * 2**20  # the largest blob and some room


class _TooLargeError(Exception):
    pass


def limit_bodies(app: App, most: int = MAX_BODY_BYTES) -> App:
    """Answer 413 as soon as a request's body is known to be, or grows, larger than `most` bytes."""

    async def limited(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await app(scope, receive, send)
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            return await _refuse(send, most)
        taken = 0
        started = False

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise _TooLargeError
            return message

        async def sent(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, counted, sent)
        except _TooLargeError:
            if not started:
                await _refuse(send, most)

    return limited


async def _refuse(send: Send, most: int) -> None:
    problem = {
        "type": "about:blank",
        "title": "Content Too Large",
        "status": 413,
        "detail": f"A request's body has at most {most:,} bytes.",
        "errors": [],
    }
    headers = [(b"content-type", b"application/problem+json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(problem).encode()})


def with_lifespan(app: App, work: Callable[[], Coroutine[Any, Any, None]]) -> App:
    """Run `work` in the background from the server's start to its end."""

    async def lived(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            return await app(scope, receive, send)
        await receive()  # lifespan.startup
        task = asyncio.create_task(work())
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await send({"type": "lifespan.shutdown.complete"})

    return lived
