"""Which sequence numbers of a writer are stored: everything up to one, and ranges beyond it."""

from bisect import bisect_right
from dataclasses import dataclass, field

MAX_RANGES = 256


@dataclass
class Seen:
    """`ranges` are [from, to], both included, ascending, apart, and all above `upto` + 1."""

    upto: int = 0
    ranges: list[list[int]] = field(default_factory=list)

    def known(self, numbers: list[int]) -> set[int]:
        """Those of the numbers that are stored already."""
        if min(numbers) > (self.ranges[-1][1] if self.ranges else self.upto):
            return set()  # the usual case: all are new
        return {number for number in numbers if self._has(number)}

    def _has(self, number: int) -> bool:
        if number <= self.upto:
            return True
        index = bisect_right(self.ranges, number, key=lambda pair: pair[0]) - 1
        return index >= 0 and number <= self.ranges[index][1]

    def add(self, numbers: list[int]) -> list[tuple[int, int]]:
        """Mark numbers as seen.

        Beyond 256 ranges the lowest holes are given up: returns them as (from, to), numbers that
        never came and would count as duplicates from now on.
        """
        merged: list[list[int]] = []
        pieces = [[0, self.upto], *self.ranges, *_ranges(numbers)]
        for start, stop in sorted(pieces):
            if merged and start <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], stop)
            else:
                merged.append([start, stop])
        given_up = []
        while len(merged) > MAX_RANGES + 1:
            low, high = merged[0], merged.pop(1)
            given_up.append((low[1] + 1, high[0] - 1))
            low[1] = high[1]
        self.upto, self.ranges = merged[0][1], merged[1:]
        return given_up


def _ranges(numbers: list[int]) -> list[list[int]]:
    """The numbers as [from, to]; mostly they are consecutive and give one."""
    ordered = sorted(numbers)
    first, last = ordered[0], ordered[-1]
    if last - first + 1 == len(ordered) == len(set(ordered)):
        return [[first, last]]
    return [[number, number] for number in ordered]
