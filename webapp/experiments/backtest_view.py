"""A backtest's result as its page shows it: two histograms on the same bins, changes with links."""

from dataclasses import dataclass
from typing import Any

from webapp.experiments.models import Job
from webapp.reviews.models import Trajectory


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


def histogram(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Both distributions on the same bins: {low, high, counts: [before, now]}; empty: no reward."""
    edges, old, new = result["edges"], result["old"]["counts"], result["new"]["counts"]
    if not any([*old, *new]):
        return []
    bins = zip(edges, edges[1:], old, new, strict=False)
    return [{"low": low, "high": high, "counts": [a, b]} for low, high, a, b in bins]


def changes(job: Job, side: str) -> list[ChangeRow]:
    """The `gainers` or the `losers`, the largest change first."""
    found = job.result[side] if job.result else []
    here = set(
        Trajectory.objects.filter(
            project=job.project_id, pk__in=[one["trajectory_id"][:40] for one in found]
        ).values_list("pk", flat=True)
    )
    return [ChangeRow(**one, is_here=one["trajectory_id"] in here) for one in found]
