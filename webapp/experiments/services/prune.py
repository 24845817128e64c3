"""Pruning: what may go, by rules that keep all that a run, dataset, fork or label refers to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet, Window
from django.db.models.fields.json import KT
from django.db.models.functions import RowNumber
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from webapp import queue, storage
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import (
    Checkpoint,
    DatasetVersion,
    Experiment,
    Job,
    Removal,
    Run,
    State,
    Upload,
)
from webapp.experiments.services.checkpoints import remove_checkpoint
from webapp.experiments.services.job_files import files_of, remove_export
from webapp.experiments.services.jobs import start_job
from webapp.experiments.states import lock
from webapp.problems import FieldProblem, RefusedError, invalid_field
from webapp.reviews.models import Comment, Queue, QueueItem, TrainedTokens, Trajectory

KIND = "prune"
MEASURE = "storage"


class Wish(BaseModel):
    """What shall go. `preview`: only say what would."""

    model_config = ConfigDict(extra="forbid")

    # Of every run that has ended: so many of the newest stay, besides the final ones. None: all.
    keep_checkpoints: int | None = Field(None, ge=1, le=10_000)
    pools: bool = False  # logs of the pool of runs that succeeded: nothing resumes from them
    archived_trajectories: bool = False  # of archived runs
    exports: bool = False  # files of exports, however new
    preview: bool = True


@dataclass(frozen=True)
class Item:
    """One thing that may go: a checkpoint, the pool of a run, a shard, the file of an export."""

    kind: str
    run_id: str
    name: str  # id of the checkpoint or job, SHA-256 of the shard, or empty
    bytes: int
    files: int


@transaction.atomic
def start_prune(project: Project, user: User, wish: dict[str, Any]) -> Job:
    """Queue a job that prunes, or previews. Raises RefusedError."""
    try:
        asked = Wish.model_validate(wish)
    except ValidationError as error:
        problems = [
            FieldProblem(".".join(map(str, one["loc"])), one["msg"])
            for one in error.errors(include_url=False)
        ]
        raise RefusedError("This cannot be pruned so.", problems) from None
    if not (asked.keep_checkpoints or asked.pools or asked.archived_trajectories or asked.exports):
        raise invalid_field("keep_checkpoints", "Choose what shall go.")
    if not asked.preview:
        record("storage.prune", project.pk, user=user, project=project, **asked.model_dump())
    title = "Preview of pruning" if asked.preview else "Pruning"
    return start_job(project, user, KIND, asked.model_dump(), title=title)


@transaction.atomic
def start_measure(project: Project, user: User) -> Job:
    """Queue a job that looks at the files of all runs of the project."""
    return start_job(project, user, MEASURE, {}, title="Measuring the storage")


def candidates(project_id: str, wish: Wish) -> Iterator[Item]:
    """Everything that the wish names and nothing refers to, run by run where it can."""
    if wish.keep_checkpoints is not None:
        for one in surplus_checkpoints(project_id, wish.keep_checkpoints):
            sizes = [file.get("size", 0) for file in one.files.values()]
            yield Item("checkpoint", one.run_id, one.pk, sum(sizes), len(sizes))
    if wish.pools:
        done = Run.objects.filter(
            project=project_id, state=State.SUCCEEDED, is_external=False
        ).order_by("pk")
        for run_id in done.values_list("pk", flat=True):
            if (pool := storage.run_usage(run_id, "pool").get("pool")) is not None:
                yield Item("pool", run_id, "", *pool)
    if wish.archived_trajectories:
        for shard in spare_shards(project_id):
            yield Item("trajectories", shard.run_id, shard.sha256, shard.size, 1)
    if wish.exports:
        for run_id, job_id, size in files_of(project_id):
            yield Item("export", run_id, job_id, size, 1)


def surplus_checkpoints(project_id: str, keep: int) -> QuerySet[Checkpoint]:
    """Of ended runs: not final, not among the newest, and no run was started from them."""
    held = Checkpoint.objects.filter(
        run__project=project_id, run__is_external=False, removed_at=None, final=False
    ).exclude(run__ended_at=None)
    ranked = held.annotate(
        place=Window(
            RowNumber(),
            partition_by=F("run"),
            order_by=[F("created_at").desc(), F("step").desc(), F("pk").desc()],
        )
    ).filter(place__gt=keep)
    return (
        Checkpoint.objects.filter(pk__in=ranked.values("pk"))
        .exclude(Exists(Run.objects.filter(checkpoint=OuterRef("pk"))))
        .order_by("run_id", "created_at")
    )


def spare_shards(project_id: str) -> QuerySet[Upload]:
    """Shards of archived runs, of trajectories or of what training saw of them, where none of
    these is commented on or in a review queue."""
    shard = Trajectory.objects.filter(run=OuterRef("run"), shard=OuterRef("sha256"))
    spoken_of = Comment.objects.filter(
        trajectory__run=OuterRef("run"), trajectory__shard=OuterRef("sha256")
    )
    judged = QueueItem.objects.filter(
        trajectory__run=OuterRef("run"), trajectory__shard=OuterRef("sha256")
    )
    tokens = TrainedTokens.objects.filter(run=OuterRef("run"), shard=OuterRef("sha256"))
    of = OuterRef("trajectory_id")
    tokens_of_kept = tokens.filter(
        Exists(Comment.objects.filter(trajectory=of))
        | Exists(QueueItem.objects.filter(trajectory=of))
    )
    return (
        Upload.objects.filter(run__in=_spare_runs(project_id))
        .filter(Exists(shard) | Exists(tokens))
        .exclude(Exists(spoken_of))
        .exclude(Exists(judged))
        .exclude(Exists(tokens_of_kept))
        .order_by("run_id", "pk")
    )


def _spare_runs(project_id: str) -> QuerySet[Run]:
    """Archived runs that no dataset was made from, no queue asks about and no baseline is."""
    origin = DatasetVersion.objects.annotate(origin=KT("source__run"))
    sources = origin.filter(origin=OuterRef("pk"))
    return (
        Run.objects.filter(project=project_id)
        .exclude(archived_at=None)
        .exclude(ended_at=None)
        .exclude(Exists(sources))
        .exclude(Exists(Queue.objects.filter(run=OuterRef("pk"))))
        .exclude(Exists(Experiment.objects.filter(baseline=OuterRef("pk"))))
    )


def remove(item: Item, wish: Wish, project_id: str, user: User | None) -> bool:
    """Remove one thing, unless something came to refer to it meanwhile: then False."""
    if item.kind == "checkpoint":
        return _remove_checkpoint(item, wish.keep_checkpoints or 1, project_id, user)
    if item.kind == "pool":
        return _remove_pool(item)
    if item.kind == "export":
        return remove_export(item.name)
    return _remove_shard(item, project_id)


@transaction.atomic
def _remove_checkpoint(item: Item, keep: int, project_id: str, user: User | None) -> bool:
    run = Run.objects.filter(pk=item.run_id).first()
    if run is None:
        return False
    lock(run.pk)
    list(Checkpoint.objects.select_for_update().filter(pk=item.name))  # nothing starts from it now
    found = surplus_checkpoints(project_id, keep).filter(pk=item.name).first()
    if found is None:
        return False
    try:
        remove_checkpoint(found, user)
    except RefusedError:
        return False
    return True


@transaction.atomic
def _remove_pool(item: Item) -> bool:
    run = Run.objects.select_for_update(no_key=True).filter(pk=item.run_id).first()
    if run is None or run.state != State.SUCCEEDED:
        return False
    storage.remove_run(run.pk, "pool")
    return True


@transaction.atomic
def _remove_shard(item: Item, project_id: str) -> bool:
    """The index rows stay: lists show them, and their replay says that the shard is gone."""
    run = Run.objects.select_for_update(no_key=True).filter(pk=item.run_id).first()
    if run is None:
        return False
    gone, _ = spare_shards(project_id).filter(run=run, sha256=item.name).delete()
    if not gone:
        return False
    Removal.objects.create(kind="blob", name=item.name)
    queue.send("caravan.remove")
    return True
