"""How rows of a dataset are spread over categories and difficulties."""

from collections import Counter
from typing import Any

from engine.records.rows import NO_CATEGORY

MOST_CATEGORIES = 200
MOST_VALUES = 12  # that have a bar each; more are counted in ranges
RANGES = 10
MOST = 1e300

Bar = tuple[float, float, int]  # from, to (both belong to it), rows


class Spread:
    """Counts rows one by one."""

    def __init__(self) -> None:
        self._categories: Counter[str] = Counter()
        self._difficulties: Counter[float] = Counter()

    def add(self, row: dict[str, Any]) -> None:
        self._categories[str(row.get("category") or NO_CATEGORY)] += 1
        for name in ("difficulty", "hops"):
            value = row.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                if abs(value) < MOST:  # neither NaN nor beyond what a float holds
                    self._difficulties[float(value)] += 1
                return

    @property
    def categories(self) -> dict[str, int]:
        return dict(self._categories.most_common(MOST_CATEGORIES))

    @property
    def difficulties(self) -> list[Bar]:
        """In order; empty where no row says how difficult it is."""
        counts = sorted(self._difficulties.items())
        if len(counts) <= MOST_VALUES:
            return [(value, value, rows) for value, rows in counts]
        low, high = counts[0][0], counts[-1][0]
        width = (high - low) / RANGES
        found = [0] * RANGES
        for value, rows in counts:
            found[min(RANGES - 1, int((value - low) / width))] += rows
        return [
            (low + width * place, low + width * (place + 1), rows)
            for place, rows in enumerate(found)
        ]
