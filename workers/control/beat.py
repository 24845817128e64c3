"""Celery's scheduler, which shows at every tick that it goes on."""

from typing import Any

from celery.beat import PersistentScheduler

from workers.alive import show_alive


class WatchedScheduler(PersistentScheduler):  # type: ignore[misc]  # Celery has no types
    max_interval = 5  # seconds between two ticks, at most

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        show_alive()
        return super().tick(*args, **kwargs)
