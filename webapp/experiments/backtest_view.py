"""A backtest's result as its page shows it: two histograms on the same bins, changes with links."""

from dataclasses import dataclass
from typing import Any

from webapp.experiments.models import Job
from webapp.reviews.models import Trajectory

WIDTH, HEIGHT = 600, 160  # of the drawing, in its own units
GAP = 4  # between two bins


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Bin:
    """One bin of both distributions: counts, and the bars that stand for them."""

    low: float
    high: float
    old: int
    new: int
    old_bar: Bar
    new_bar: Bar


@dataclass(frozen=True)
class ChangeRow:
    """A trajectory whose reward changed; `is_here`: its replay can be opened."""

    trajectory_id: str
    task_id: str
    old: float
    new: float
    terms: dict[str, float | None]
    is_here: bool

    @property
    def difference(self) -> float:
        return self.new - self.old


def histogram(result: dict[str, Any]) -> list[Bin]:
    """Bars side by side, as high as their share of the larger distribution's fullest bin."""
    edges = result["edges"]
    old, new = result["old"]["counts"], result["new"]["counts"]
    most = max([*old, *new], default=0)
    if not most:
        return []
    slot = WIDTH / len(old)
    width = (slot - GAP) / 2

    def bar(place: int, count: int, second: bool) -> Bar:
        height = HEIGHT * count / most
        return Bar(place * slot + GAP / 2 + width * second, HEIGHT - height, width, height)

    return [
        Bin(
            edges[place],
            edges[place + 1],
            old[place],
            new[place],
            bar(place, old[place], False),
            bar(place, new[place], True),
        )
        for place in range(len(old))
    ]


def changes(job: Job, side: str) -> list[ChangeRow]:
    """The `gainers` or the `losers`, the largest change first."""
    found = job.result[side] if job.result else []
    here = set(
        Trajectory.objects.filter(
            project=job.project_id, pk__in=[one["trajectory_id"][:40] for one in found]
        ).values_list("pk", flat=True)
    )
    return [ChangeRow(**one, is_here=one["trajectory_id"] in here) for one in found]
