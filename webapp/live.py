"""Small hints over the channel layer: which topic has news. The news itself is in the database."""

import logging
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

logger = logging.getLogger(__name__)

CLUSTER = "cluster"


def run_topic(run_id: str) -> str:
    return f"run.{run_id}"


def project_topic(project_id: str) -> str:
    return f"project.{project_id}"


async def publish(*topics: str) -> None:
    """Say that these topics have news. A lost hint heals: topics repeat their cursor."""
    layer = get_channel_layer()
    for topic in topics:
        try:
            await layer.group_send(topic, {"type": "news", "topic": topic})
        except Exception as error:  # the row is stored; that nobody hears of it at once is no error
            logger.warning("no news of %s: %s", topic, error)


def announce(run: Any) -> None:
    """After the current transaction: a run's state changed, tell its page and its project's."""
    topics = (run_topic(run.pk), project_topic(run.project_id))
    transaction.on_commit(lambda: async_to_sync(publish)(*topics))
