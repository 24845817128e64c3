"""Celery from the sending side: tasks are named, their code lives in workers.control."""

import logging
from typing import Any
from urllib.parse import parse_qs, urlsplit

from celery import Celery
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)


def broker_url(redis_url: str) -> str:
    """Celery's spelling of a Valkey URL on a unix socket; other URLs stay as they are."""
    if not redis_url.startswith("unix://"):
        return redis_url
    parts = urlsplit(redis_url)
    database = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{parts.netloc}{parts.path}?virtual_host={database}"


app = Celery("caravan", broker=broker_url(settings.REDIS_URL))
app.conf.update(
    task_ignore_result=True,
    # Each queue has a worker of its own: what takes long holds up nothing else.
    task_routes={"caravan.work": {"queue": "jobs"}, "caravan.deliver": {"queue": "webhooks"}},
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        # All tasks are shorter but jobs: one that is delivered twice finds that it is claimed.
        "visibility_timeout": 300,
        "socket_connect_timeout": 3,
        "socket_timeout": 5,
        "global_keyprefix": "caravan.",
    },
    task_publish_retry_policy={"max_retries": 1, "interval_start": 0.1},
    timezone="UTC",
)


def send(name: str, *ids: str, **options: Any) -> None:
    """Enqueue a task once the current transaction has committed. Only ids travel.

    An unreachable queue loses nothing: the reconciler sends again what the database says is due.
    `options` are Celery's: what is sent every few seconds `expires`, in seconds, so that a queue
    that nobody empties does not grow.
    """

    def now() -> None:
        try:
            app.send_task(name, args=ids, **options)
        except OperationalError as error:
            logger.warning("%s%r was not enqueued, the reconciler will: %s", name, ids, error)

    transaction.on_commit(now)
