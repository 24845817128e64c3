"""Phases of one actor on a monotonic clock, and the share of time it was busy."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Phase = Literal["generate", "tool", "queue", "train", "sync", "evaluate", "idle"]
Span = tuple[Phase, float, float]

BUSY: frozenset[Phase] = frozenset(("generate", "train", "sync", "evaluate"))
_SHORTEST_S = 0.05  # shorter phases are drawn as the one that prevailed around them


class PhaseClock:
    """Always in exactly one phase; `idle` until told otherwise. Not for several threads.

    Span times are seconds since 1970, from one reading of the wall clock and a monotonic clock, so
    that they never overlap or run backwards.
    """

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, wall: Callable[[], float] = time.time
    ) -> None:
        self._now = now
        self._epoch = wall() - now()
        self._phase: Phase = "idle"
        self._since = now()
        self._spans: list[Span] = []
        self._short: dict[Phase, float] = {}  # seconds by phase since the last span's end
        self._short_since = self._since
        self._busy_s = 0.0
        self._drained = self._since

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Be in this phase for the time of the block; the phase around it goes on afterwards."""
        around = self._phase
        self.enter(name)
        try:
            yield
        finally:
            self.enter(around)

    def enter(self, name: Phase) -> None:
        if name != self._phase:
            self._cut()
            self._phase = name

    def drain(self) -> tuple[list[Span], float]:
        """The spans since the last call, without holes, and the busy share of it (0 to 1)."""
        self._cut()
        self._draw()
        spans, self._spans = self._spans, []
        busy, self._busy_s = self._busy_s, 0.0
        total, self._drained = self._since - self._drained, self._since
        return spans, busy / total if total > 0 else 0.0

    def _cut(self) -> None:
        now = self._now()
        lasted, self._since = now - self._since, now
        if self._phase in BUSY:
            self._busy_s += lasted
        self._short[self._phase] = self._short.get(self._phase, 0.0) + lasted
        if now - self._short_since >= _SHORTEST_S:
            self._draw()

    def _draw(self) -> None:
        if self._since <= self._short_since:
            return
        phase = max(self._short, key=lambda p: self._short[p])
        start, stop = self._short_since + self._epoch, self._since + self._epoch
        if self._spans and self._spans[-1][0] == phase:
            start = self._spans.pop()[1]
        self._spans.append((phase, start, stop))
        self._short = {}
        self._short_since = self._since
