"""One feed per topic and process: hears hints, reads the news once, hands it to all subscribers.

A subscriber that has not taken the last update gets none: the next one covers what it missed, so
that a slow reader costs no memory and gets "fetch" when too much has come together.
"""

import asyncio
import json
import logging
import time
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer

from webapp.live import hint_of
from webapp.monitoring.live_reads import Update, read

logger = logging.getLogger(__name__)

MIN_INTERVAL_S = 0.25
CURSOR_EVERY_S = 5.0
LATEST_WINS = ("state", "pool", "tree", "devices", "episodes", "episode")


class Subscriber(Protocol):
    """One topic of one socket: where it stands, and whether it can take an update."""

    cursor: int
    shown: dict[str, str]  # kind -> what it was sent last, of kinds where only the latest counts

    @property
    def is_free(self) -> bool: ...

    def hand(self, texts: list[str]) -> None: ...


class Part(NamedTuple):
    """A message of an update as it is sent; `content` tells whether the same was shown before."""

    kind: str
    cursor: int
    text: str
    content: str


class Feed:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.subscribers: set[Subscriber] = set()
        self.news = asyncio.Event()
        self.tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._serve())]

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()

    async def _listen(self) -> None:
        """Wake up when a hint comes. Without Valkey, news comes every five seconds."""
        while True:
            try:
                layer = get_channel_layer()
                channel = await layer.new_channel()
                await layer.group_add(hint_of(self.topic), channel)
                try:
                    self.news.set()  # what happened before we listened
                    while True:
                        await layer.receive(channel)
                        self.news.set()
                finally:
                    with suppress(Exception):
                        await layer.group_discard(hint_of(self.topic), channel)
            except Exception as error:
                logger.warning("no hints of %s: %s", self.topic, error)
                await asyncio.sleep(CURSOR_EVERY_S)

    async def _serve(self) -> None:
        repeated = time.monotonic()
        while True:
            with suppress(TimeoutError):
                due = max(0.01, repeated + CURSOR_EVERY_S - time.monotonic())
                await asyncio.wait_for(self.news.wait(), due)
            self.news.clear()
            repeat = time.monotonic() >= repeated + CURSOR_EVERY_S
            if repeat:
                repeated = time.monotonic()
            try:
                await self._update(repeat)
            except Exception:
                logger.warning("no update of %s", self.topic, exc_info=True)
            await asyncio.sleep(MIN_INTERVAL_S)

    async def _update(self, repeat: bool) -> None:
        """Read once for each cursor at which free subscribers stand; mostly that is one."""
        waiting: dict[int, list[Subscriber]] = {}
        for subscriber in self.subscribers:
            if subscriber.is_free:
                waiting.setdefault(subscriber.cursor, []).append(subscriber)
            else:
                self.news.set()
        for cursor, subscribers in waiting.items():
            update = await database_sync_to_async(read, thread_sensitive=False)(self.topic, cursor)
            parts = [self._part(message) for message in update.messages]
            for subscriber in subscribers:
                if subscriber in self.subscribers and subscriber.is_free:
                    self._hand(subscriber, update, parts, repeat)

    def _hand(
        self, subscriber: Subscriber, update: Update, parts: list[Part], repeat: bool
    ) -> None:
        """Hand over what was not shown yet, in such a way that the last message has the cursor."""
        news = []
        for part in parts:
            if part.kind in LATEST_WINS:
                if subscriber.shown.get(part.kind) == part.content:
                    continue
                subscriber.shown[part.kind] = part.content
            news.append(part)
        moved = update.cursor != subscriber.cursor
        subscriber.cursor = update.cursor
        if (repeat or moved) and not (news and news[-1].cursor == update.cursor):
            news.append(self._part({"kind": "cursor", "cursor": update.cursor}))
        if news:
            subscriber.hand([part.text for part in news])

    def _part(self, message: dict[str, Any]) -> Part:
        text = json.dumps({"topic": self.topic, **message}, ensure_ascii=False, allow_nan=False)
        content = json.dumps({**message, "cursor": None}) if message["kind"] in LATEST_WINS else ""
        return Part(message["kind"], message["cursor"], text, content)


_feeds: dict[str, Feed] = {}


def join(topic: str, subscriber: Subscriber) -> None:
    """Start handing updates of a topic to the subscriber, from its cursor on."""
    feed = _feeds.get(topic)
    if feed is None:
        feed = _feeds[topic] = Feed(topic)
    feed.subscribers.add(subscriber)
    feed.news.set()


def leave(topic: str, subscriber: Subscriber) -> None:
    feed = _feeds.get(topic)
    if feed is None:
        return
    feed.subscribers.discard(subscriber)
    if not feed.subscribers:
        feed.close()
        del _feeds[topic]
