"""The distribution gate: the shares that a training batch keeps, and how long it waits for them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SHORTEST_TOLD_WAIT_S = 0.05


@dataclass(frozen=True)
class Decision:
    """`take` are indices into the waiting groups, None: wait. `text` says why training waited."""

    take: list[int] | None
    waited_s: float = 0.0
    text: str = ""


class Gate:
    """Largest share of a batch by category; a category without one is unlimited."""

    def __init__(self, shares: Mapping[str, float], max_wait_s: float) -> None:
        self.shares = dict(shares)
        self.max_wait_s = max_wait_s
        self._waiting_since: float | None = None
        self._reason = ""

    def limit(self, category: str, batch: int) -> int:
        """Groups of this category that fit into a batch; rounded up, so that limits whose shares
        add up to 1 can fill it."""
        return math.ceil(self.shares.get(category, 1.0) * batch - 1e-9)

    def decide(self, categories: Sequence[str], batch: int, now: float) -> Decision:
        """Which of the waiting groups, oldest first, make the next batch. `now` is monotonic."""
        if len(categories) < batch:
            return Decision(None)
        chosen: list[int] = []
        taken: Counter[str] = Counter()
        for index, category in enumerate(categories):
            if taken[category] < self.limit(category, batch):
                taken[category] += 1
                chosen.append(index)
                if len(chosen) == batch:
                    return self._fits(chosen, now)
        if self._waiting_since is None:
            self._waiting_since = now
        self._reason = self._excess(categories[:batch])
        if now - self._waiting_since < self.max_wait_s:
            return Decision(None, now - self._waiting_since)
        kept = set(chosen)
        rest = [index for index in range(len(categories)) if index not in kept]
        waited = self.forget_wait(now)
        text = f"training went on after {_seconds(waited)}: {self._reason}"
        return Decision(sorted(chosen + rest[: batch - len(chosen)]), waited, text)

    def next_category(self, on_the_way: Mapping[str, int]) -> str | None:
        """The category to start next: the furthest below its share of what is waiting or in
        flight. None: any."""
        wanted = [category for category, share in self.shares.items() if share > 0]
        return min(wanted, key=lambda c: on_the_way.get(c, 0) / self.shares[c], default=None)

    def forget_wait(self, now: float) -> float:
        """End the wait, for instance because training is paused; how long it was."""
        waited = 0.0 if self._waiting_since is None else now - self._waiting_since
        self._waiting_since = None
        return waited

    def _fits(self, chosen: list[int], now: float) -> Decision:
        waited = self.forget_wait(now)
        told = waited >= _SHORTEST_TOLD_WAIT_S
        text = f"training waited {_seconds(waited)}: {self._reason}" if told else ""
        return Decision(chosen, waited, text)

    def _excess(self, categories: Sequence[str]) -> str:
        counts = Counter(categories)
        over = max(counts, key=lambda c: counts[c] / len(categories) - self.shares.get(c, 1.0))
        return f"{over} {counts[over] / len(categories):.0%} > {self.shares.get(over, 1.0):.0%}"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
