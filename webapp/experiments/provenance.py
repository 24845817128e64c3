"""Where a version of a dataset came from, and what was made of it."""

from dataclasses import dataclass
from typing import Any

from webapp.experiments.models import DatasetVersion, Run, StageDataset
from webapp.reviews.models import Queue

MOST_RUNS = 50


@dataclass(frozen=True)
class Provenance:
    """`run` and `queue` are those of its source, None where there is none, or it is gone."""

    version: DatasetVersion
    run: Run | None
    queue: Queue | None

    @property
    def counts(self) -> list[tuple[str, Any]]:
        """What its source says besides: how many items were accepted, rejected, left out."""
        skipped = ("kind", "run", "queue", "file")
        return [(key, value) for key, value in self.version.source.items() if key not in skipped]


def provenance_of(versions: list[DatasetVersion]) -> dict[str, Provenance]:
    """By the version's id, in two queries however many they are."""
    runs = _named(Run.objects.all(), versions, "run")
    queues = _named(Queue.objects.select_related("run"), versions, "queue")
    return {
        one.pk: Provenance(
            one,
            runs.get(one.source.get("run", "")),
            queues.get(one.source.get("queue", "")),
        )
        for one in versions
    }


def learners_of(version: DatasetVersion) -> list[StageDataset]:
    """The stages that learn from it, those of the newest runs first, at most MOST_RUNS."""
    uses = version.stage_datasets.select_related("run").defer("run__spec", "run__summary")
    return list(uses.order_by("-run__created_at", "stage")[:MOST_RUNS])


def _named(rows: Any, versions: list[DatasetVersion], key: str) -> dict[str, Any]:
    """What sources name, by id; only of the project of the version that names it."""
    wanted = {str(one.source[key]) for one in versions if one.source.get(key)}
    projects = {one.dataset.project_id for one in versions}
    return {row.pk: row for row in rows.filter(pk__in=wanted, project__in=projects)}
