"""Notices services that hang: their process lives and answers nobody.

Failures in a row are counted, not time: where this process itself was stopped for an hour, or the
machine slept, nobody is to blame for it. Nor is a service whose stores do not answer either.
"""

import threading
from collections.abc import Mapping

from workers.local.child import Child
from workers.local.probes import answers

EVERY_S = 10.0  # two busy cores must not notice the asking
PATIENCE_S = 10.0  # for one answer
MOST_SILENT = 8  # then it hangs: after 70 s at least, 150 s where every question waits


class Watchdog(threading.Thread):
    """Asks every service in turn until `stop` is set; counts in `Child.silent`."""

    def __init__(self, children: Mapping[str, Child], stop: threading.Event) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._children = children
        self._stop_asked = stop

    def run(self) -> None:
        while not self._stop_asked.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        """Ask each service once, those first that others depend on."""
        troubled: set[str] = set()
        for name, child in self._children.items():
            if not child.ready:
                troubled.add(name)
                continue
            process, health = child.process, child.service.health
            if health is None:
                continue
            answered = answers(health, PATIENCE_S)
            if child.process is not process or not child.ready:
                continue  # it was started again meanwhile
            if answered:
                child.silent = 0
                continue
            if not troubled.intersection(child.service.depends_on):
                child.silent += 1
            troubled.add(name)


def is_hung(child: Child) -> bool:
    return child.silent >= MOST_SILENT


def how_long() -> str:
    """What is said of a service that hangs."""
    return f"hangs: {MOST_SILENT} times in a row it did not answer"
