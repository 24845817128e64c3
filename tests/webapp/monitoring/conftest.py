"""Sockets of pages, closed after each test."""

from collections.abc import AsyncIterator

import pytest
from channels.db import database_sync_to_async

from tests.webapp.monitoring.sockets import ORIGIN, Open, Socket, handshake, session_cookie
from webapp.accounts.models import User
from webapp.monitoring import feeds


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
