"""From a dataset version back to the labels that it was made of."""

from dataclasses import dataclass

from webapp.experiments.models import DatasetVersion, Run
from webapp.reviews.models import Queue
from webapp.reviews.queue_queries import Reviewer, reviewers_of


@dataclass(frozen=True)
class Labels:
    """The queue, its reviewers and the run whose trajectories they judged; each row of the version
    names its trajectory and its verdicts under `review`."""

    version: DatasetVersion
    queue: Queue
    reviewers: list[Reviewer]
    source_run: Run | None


def labels_of(version: DatasetVersion) -> Labels | None:
    """None where the version was not made of labels, or its queue is gone."""
    if version.source.get("kind") != "labels":
        return None
    queue = (
        Queue.objects.filter(pk=version.source.get("queue"), project=version.dataset.project_id)
        .select_related("run")
        .first()
    )
    return Labels(version, queue, reviewers_of(queue), queue.run) if queue else None
