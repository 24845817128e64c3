"""One measured figure, and its judgement against the bar that the issue states."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BAR = re.compile(r"(at least|at most) ([\d.]+(?:e-?\d+)?)")


@dataclass(frozen=True)
class Options:
    """What the person asked a benchmark for, and what it is given to work with.

    seeds: None: as many as the benchmark has by itself. workers: runs at once. folder: where
    benchmarks keep what they find. say: shows a line of progress. minutes: of what is watched for
    a while; None: as long as the bar names.
    """

    seeds: int | None = None
    workers: int = 1
    folder: Path = Path()
    say: Callable[[str], None] = print
    minutes: float | None = None


@dataclass(frozen=True)
class Figure:
    """A value with its unit, its bar ("at least 0.88", "at most 500", empty: only shown), the same
    measure of a peer, and how it was taken. `value` None: not taken, `setup` says why."""

    bench: str
    metric: str
    value: float | None
    unit: str
    bar: str = ""
    peer: str = ""
    ratio: float | None = None
    setup: str = ""

    def __post_init__(self) -> None:
        if self.bar and not BAR.fullmatch(self.bar):
            raise ValueError(f"bar {self.bar!r} must read 'at least NUMBER' or 'at most NUMBER'")

    @property
    def passed(self) -> bool:
        """Whether the value is a number and on the right side of the bar."""
        if self.value is None or not math.isfinite(self.value):
            return False
        if not self.bar:
            return True
        side, number = self.bar.rsplit(" ", 1)
        return self.value >= float(number) if side == "at least" else self.value <= float(number)

    def as_json(self) -> dict[str, Any]:
        """The object that `caravan bench --json` prints; non-finite values become null."""
        finite = self.value is not None and math.isfinite(self.value)
        return {
            "bench": self.bench,
            "metric": self.metric,
            "value": self.value if finite else None,
            "unit": self.unit,
            "bar": self.bar,
            "pass": self.passed,
            "peer": self.peer,
            "ratio": self.ratio,
            "setup": self.setup,
        }


def measured(
    bench: str,
    metric: str,
    value: float | None,
    unit: str,
    bar: str = "",
    *,
    peer: str = "",
    setup: str = "",
) -> Figure:
    """A figure that is the ratio to its peer itself, where one is named."""
    ratio = value if peer else None
    return Figure(bench, metric, value, unit, bar, peer=peer, ratio=ratio, setup=setup)


def from_json(stored: dict[str, Any]) -> Figure:
    """The figure that `as_json` wrote; it is judged anew."""
    return Figure(**{key: value for key, value in stored.items() if key != "pass"})
