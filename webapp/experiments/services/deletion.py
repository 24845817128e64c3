"""Deleting a run for good: its rows at once, its files from a task that may be cut short."""

from django.db import transaction
from django.db.models import Q

from webapp import live, queue, storage
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.experiments.models import DatasetVersion, Removal, Run, Upload
from webapp.experiments.services.blobs import remove_unused_blob
from webapp.experiments.services.fork import held
from webapp.experiments.states import lock
from webapp.monitoring.models import Point, Rollup, RunEvent, Series
from webapp.problems import conflict
from webapp.reviews.models import Queue

MOST_NAMED = 5


@transaction.atomic
def delete_run(run_id: str, user: User) -> None:
    """Remove an archived run and everything of it. Raises RefusedError (409) where it may not."""
    run = lock(run_id)
    if run.ended_at is None:
        raise conflict(f"This run is {run.state}: stop it, then archive it, then delete it.")
    if run.archived_at is None:
        raise conflict("Archive this run first: what is archived can be deleted.")
    list(run.checkpoints.select_for_update())  # nothing shall start from one meanwhile
    if needed := _needed_by(run):
        raise conflict(
            f"This run is needed by {', '.join(needed)}: what was judged or built from it must be "
            "traceable, and a run that starts from it must have copied its checkpoint."
        )
    record("run.delete", run.pk, user=user, project=run.project, name=run.name)
    live.announce(run)
    Removal.objects.bulk_create(
        [
            Removal(kind="run", name=run.pk),
            *(Removal(kind="blob", name=name) for name in _blobs(run)),
        ]
    )
    # What may be millions of rows goes without being looked at.
    for model in (Point, Rollup):
        model.objects.filter(series__in=Series.objects.filter(run=run)).delete()
    RunEvent.objects.filter(run=run).delete()
    Queue.objects.filter(run=run).delete()  # without a verdict: nobody judged there
    run.delete()
    queue.send("caravan.remove")


def _blobs(run: Run) -> list[str]:
    return list(Upload.objects.filter(run=run).values_list("sha256", flat=True))


def _needed_by(run: Run) -> list[str]:
    """What would lose its origin, as people name it."""
    versions = DatasetVersion.objects.filter(source__run=run.pk).select_related("dataset")
    judged = Q(items__verdicts__isnull=False) | Q(items__marks__isnull=False)
    queues = Queue.objects.filter(judged, run=run).order_by("name").distinct()
    forks = held().filter(checkpoint__run=run).order_by("name")
    found = [
        *(f"run {one.name!r}, which starts from its checkpoint" for one in forks),
        *(f"version {one.number} of dataset {one.dataset.name!r}" for one in versions),
        *(f"review queue {one.name!r}" for one in queues),
    ]
    more = len(found) - MOST_NAMED
    return [*found[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])]


def remove_leftovers(most: int = 1000) -> int:
    """Remove the files of deleted runs; one by one, so that a task that ends early loses nothing.

    Returns how many were looked at."""
    waiting = list(Removal.objects.order_by("pk")[:most])
    for one in waiting:
        if one.kind == "run":
            storage.remove_run(one.name)
        else:
            remove_unused_blob(one.name)
        one.delete()
    return len(waiting)
