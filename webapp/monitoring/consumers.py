"""The websocket of a page: one connection, several topics, each from the cursor the page holds."""

import asyncio
import json
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error
from django.http import Http404

from webapp.accounts import access
from webapp.accounts.access import Actor
from webapp.accounts.credentials import find_api_token, is_live
from webapp.accounts.models import ApiToken, Project, User
from webapp.experiments.models import Run
from webapp.live import CLUSTER
from webapp.monitoring import feeds
from webapp.reviews import episodes

MAX_TOPICS = 50
CHECK_EVERY_S = 5.0
STUCK_AFTER_S = 30.0
SIGNED_OUT, TOO_SLOW = 4401, 4408


class Subscription:
    """One topic of a socket; see `feeds.Subscriber`."""

    def __init__(self, socket: "LiveSocket", cursor: int) -> None:
        self.socket = socket
        self.cursor = cursor
        self.shown: dict[str, str] = {}
        self.handed_at: float | None = None  # None: everything handed was sent

    @property
    def is_free(self) -> bool:
        return self.handed_at is None

    def hand(self, texts: list[str]) -> None:
        self.handed_at = time.monotonic()
        self.socket.outbox.put_nowait((self, texts))


class LiveSocket(AsyncWebsocketConsumer):  # type: ignore[misc]
    """Client: {"type": "subscribe", "topic", "after"} or {"type": "unsubscribe", "topic"}."""

    async def connect(self) -> None:
        self.topics: dict[str, Subscription] = {}
        # Bounded: each topic has at most one update in it.
        self.outbox: asyncio.Queue[tuple[Subscription, list[str]]] = asyncio.Queue()
        self.tasks: list[asyncio.Task[None]] = []
        if not _is_same_origin(self.scope):
            return await self._refuse(403)
        actor = await self._authenticate()
        if actor is None:
            return await self._refuse(401)
        self.actor = actor
        await self.accept()
        self.tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._check())]

    async def disconnect(self, code: int) -> None:
        for topic, subscription in self.topics.items():
            feeds.leave(topic, subscription)
        for task in self.tasks:
            task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            message = json.loads(text_data or "")
            kind, topic, after = message["type"], message["topic"], message.get("after", 0)
            if type(topic) is not str or type(after) is not int or not 0 <= after < 2**63:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return await self._problem("", 400, "A message names its type and topic.")
        if kind == "unsubscribe":
            self._leave(topic)
        elif kind == "subscribe":
            await self._subscribe(topic, after)
        else:
            await self._problem(topic, 400, f"There is no message type {kind!r}.")

    async def _subscribe(self, topic: str, after: int) -> None:
        if topic not in self.topics and len(self.topics) >= MAX_TOPICS:
            return await self._problem(topic, 400, f"A socket has at most {MAX_TOPICS} topics.")
        if not await database_sync_to_async(may_see)(self.actor, topic):
            return await self._problem(topic, 404, "There is no such thing here.")
        self._leave(topic)
        self.topics[topic] = Subscription(self, after)
        feeds.join(topic, self.topics[topic])

    def _leave(self, topic: str) -> None:
        if subscription := self.topics.pop(topic, None):
            feeds.leave(topic, subscription)

    async def _send(self) -> None:
        while True:
            subscription, texts = await self.outbox.get()
            for text in texts:
                await self.send(text_data=text)
            subscription.handed_at = None

    async def _check(self) -> None:
        """People lose roles and sessions while a page is open: look again every few seconds."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            now = time.monotonic()
            oldest = min((s.handed_at for s in self.topics.values() if s.handed_at), default=now)
            if now - oldest > STUCK_AFTER_S:
                await self.close(TOO_SLOW)
                return
            with suppress(OSError, Error):  # the database is away: it may be back for the next look
                lost = await database_sync_to_async(self._lost_topics)()
                if lost is None:
                    await self.close(SIGNED_OUT)
                    return
                for topic in lost:
                    self._leave(topic)
                    await self._problem(topic, 404, "This is gone, or no longer yours to see.")

    def _lost_topics(self) -> list[str] | None:
        if not _still_valid(self.actor, self.scope):
            return None
        return [topic for topic in self.topics if not may_see(self.actor, topic)]

    async def _authenticate(self) -> Actor | None:
        header = dict(self.scope["headers"]).get(b"authorization", b"").decode("latin-1")
        kind, _, given = header.partition(" ")
        if kind.lower() == "bearer":
            token = await database_sync_to_async(find_api_token)(given.strip())
            return Actor(token.user, token) if token else None
        user = self.scope.get("user")
        return Actor(user) if isinstance(user, User) and user.is_active else None

    async def _problem(self, topic: str, status: int, detail: str) -> None:
        problem = {"kind": "problem", "topic": topic, "status": status, "detail": detail}
        await self.send(text_data=json.dumps(problem))

    async def _refuse(self, status: int) -> None:
        """End the handshake with an HTTP status where the server can."""
        if "websocket.http.response" not in (self.scope.get("extensions") or {}):
            await self.close()
            return
        await self.base_send(
            {
                "type": "websocket.http.response.start",
                "status": status,
                "headers": [(b"content-type", b"application/problem+json")],
            }
        )
        body = json.dumps({"type": "about:blank", "status": status, "detail": "Sign in first."})
        await self.base_send({"type": "websocket.http.response.body", "body": body.encode()})


def may_see(actor: Actor, topic: str) -> bool:
    """Whether the actor may follow a topic; unknown and foreign ones look alike."""
    kind, _, pk = topic.partition(".")
    try:
        if kind in ("run", "episodes"):
            access.get(Run.objects.all(), pk, actor)
        elif kind == "episode":
            run_id, _, trajectory = pk.partition(".")
            run = access.get(Run.objects.all(), run_id, actor)
            return episodes.find(run, trajectory) is not None
        elif kind == "project":
            access.get(Project.objects.all(), pk, actor)
        else:
            return topic == CLUSTER and bool(actor.roles())
    except Http404:
        return False
    return True


def _still_valid(actor: Actor, scope: dict[str, Any]) -> bool:
    if actor.token is not None:
        token = ApiToken.objects.select_related("user").filter(pk=actor.token.pk).first()
        return token is not None and is_live(token)
    session = scope["session"]
    return (
        bool(session.exists(session.session_key))
        and User.objects.filter(pk=actor.user.pk, is_active=True).exists()
    )


def _is_same_origin(scope: dict[str, Any]) -> bool:
    """Browsers name the page's origin; other programs name none."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is None:
        return True
    host: bytes = headers.get(b"host", b"")
    return bool(urlsplit(origin.decode("latin-1")).netloc == host.decode("latin-1"))
