"""The Celery application of worker and beat: the sending side's, with our tasks and schedule."""

import os

import django
from celery.signals import heartbeat_sent

from workers.alive import show_alive

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
django.setup()

from webapp.queue import app  # noqa: E402  (needs the settings)
from workers.control import jobs, tasks  # noqa: E402

RECONCILE_S = 5
REAP_S = 60
INDEX_S = 5

app.conf.update(
    beat_schedule={
        "reconcile": {
            "task": tasks.reconcile.name,
            "schedule": RECONCILE_S,
            # A reconciliation that could not run in time is worth nothing: the next one is due.
            "options": {"expires": RECONCILE_S},
        },
        "sweeps": {
            "task": tasks.sweeps.name,
            "schedule": RECONCILE_S,
            "options": {"expires": RECONCILE_S},
        },
        "reap": {
            "task": tasks.reap.name,
            "schedule": REAP_S,
            "options": {"expires": REAP_S},
        },
        "index": {
            "task": tasks.index.name,
            "schedule": INDEX_S,
            "options": {"expires": INDEX_S},
        },
    },
    task_time_limit=120,
    task_soft_time_limit=100,
)


def _show_alive(**_: object) -> None:
    show_alive()


# Sent every two seconds by the loop that hands tasks to its processes.
heartbeat_sent.connect(_show_alive, weak=False)

__all__ = ["app", "jobs"]
