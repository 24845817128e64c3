"""What a run came from, and what came of it: runs, checkpoints, versions, queues."""

from dataclasses import dataclass

from django.db.models import Count, Q

from webapp.experiments.models import Checkpoint, DatasetVersion, Run
from webapp.experiments.provenance import Provenance, provenance_of
from webapp.experiments.services.evaluations import is_evaluation
from webapp.experiments.tries import is_try
from webapp.reviews.models import Queue

MOST = 100  # of each kind that are listed


@dataclass(frozen=True)
class Child:
    """`kind`: fork or clone, evaluation or try of a checkpoint."""

    run: Run
    kind: str


@dataclass(frozen=True)
class Learned:
    """A stage of the run, and the version that it learns from; None: its evaluations."""

    stage: int | None
    provenance: Provenance


@dataclass(frozen=True)
class Relations:
    run: Run
    learned: list[Learned]
    checkpoints: list[Checkpoint]  # that are kept or that somebody started from, with `fork_count`
    children: list[Child]  # the newest first
    versions: list[DatasetVersion]  # made from what the run did
    queues: list[Queue]  # in which what the run did is judged


def relations_of(run: Run) -> Relations:
    """In a fixed number of queries. `run` has its parent, checkpoint and reward scheme loaded."""
    uses = run.stage_datasets.select_related("version__dataset").order_by("stage")
    stages = [(one.stage, one.version) for one in uses]
    found = provenance_of(list({version.pk: version for _, version in stages}.values()))
    checkpoints = run.checkpoints.annotate(fork_count=Count("forks"))
    checkpoints = checkpoints.filter(Q(removed_at=None) | Q(fork_count__gt=0))
    children = run.children.select_related("checkpoint").order_by("-created_at", "-pk")
    versions = DatasetVersion.objects.filter(source__run=run.pk, dataset__project=run.project_id)
    return Relations(
        run,
        [Learned(stage, found[version.pk]) for stage, version in stages],
        list(checkpoints.order_by("-created_at", "-step")[:MOST]),
        [Child(one, kind_of(one)) for one in children[:MOST]],
        list(versions.select_related("dataset").order_by("-created_at")[:MOST]),
        list(Queue.objects.filter(run=run).order_by("-created_at")[:MOST]),
    )


def kind_of(child: Run) -> str:
    """What a run is to its parent."""
    if is_evaluation(child.spec):
        return "try" if is_try(child.spec["stages"][1]) else "evaluation"
    return "fork" if child.checkpoint_id else "clone"
