"""Small hints over the channel layer: which topic has news. The news itself is in the database."""

import asyncio
import logging
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

logger = logging.getLogger(__name__)

CLUSTER = "cluster"
PATIENCE_S = 2.0  # a Valkey that does not answer must not hold up who reports


def run_topic(run_id: str) -> str:
    return f"run.{run_id}"


def hint_of(topic: str) -> str:
    """The topic whose hints tell of news of this one: episodes come with events of their run."""
    kind, _, rest = topic.partition(".")
    return run_topic(rest.partition(".")[0]) if kind in ("episodes", "episode") else topic


def project_topic(project_id: str) -> str:
    return f"project.{project_id}"


async def publish(*topics: str) -> None:
    """Say that these topics have news. A lost hint heals: topics repeat their cursor."""
    layer = get_channel_layer()
    for topic in topics:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await layer.group_send(topic, {"type": "news", "topic": topic})
        except Exception as error:  # the row is stored: a hint may be lost, its sender may not
            logger.warning("no news of %s: %s", topic, error)


def announce(run: Any) -> None:
    """After the current transaction: a run's state changed, tell its page and its project's."""
    topics = (run_topic(run.pk), project_topic(run.project_id))
    transaction.on_commit(lambda: async_to_sync(publish)(*topics))
