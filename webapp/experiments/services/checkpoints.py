"""Checkpoints: the manifest is ours, the files lie on the run's storage."""

from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from webapp import storage
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.experiments.lineage import needed_later
from webapp.experiments.models import Attempt, Checkpoint, Run
from webapp.experiments.services import fork
from webapp.problems import conflict


@transaction.atomic
def remove_checkpoint(checkpoint: Checkpoint, user: User | None) -> None:
    """Remove the files on commit; the row stays. Refused while an attempt resumes from it, while a
    later stage needs it, and while a run that starts from it has not copied it yet."""
    checkpoint = Checkpoint.objects.select_for_update(of=("self",)).get(pk=checkpoint.pk)
    if Attempt.objects.filter(resume_from=checkpoint, ended_at=None).exists():
        raise conflict("An attempt is resuming from this checkpoint: wait until it has ended.")
    if stages := needed_later(checkpoint):
        raise conflict(
            f"Stage {' and '.join(map(str, stages))} of this run begins with this checkpoint or "
            "learns from it: remove it once the run has succeeded."
        )
    fork.refuse_held(checkpoint)
    checkpoint.removed_at = timezone.now()
    checkpoint.save(update_fields=["removed_at"])
    record("checkpoint.remove", checkpoint.pk, user=user, project=checkpoint.run.project)
    transaction.on_commit(lambda: storage.remove_run(checkpoint.run_id, checkpoint.path))


def prune_checkpoints() -> int:
    """Remove what runs' specs do not ask to keep: all but the newest `checkpoint.keep`, those at
    the end of a stage, and those that an attempt or a fork begins with. Returns how many."""
    held = Checkpoint.objects.filter(removed_at=None, final=False)
    crowded = held.values("run").annotate(count=Count("pk")).filter(count__gt=1)
    return sum(_prune(run_id) for run_id in crowded.values_list("run", flat=True))


@transaction.atomic
def _prune(run_id: str) -> int:
    run = Run.objects.get(pk=run_id)
    keep = run.spec.get("checkpoint", {}).get("keep")
    if keep is None:  # reported by somebody's own trainer, who decides
        return 0
    held = run.checkpoints.filter(removed_at=None, final=False).order_by("-created_at", "-step")
    active = Attempt.objects.filter(run=run, ended_at=None).exclude(resume_from=None)
    surplus = list(held[keep:].values_list("pk", flat=True))
    removed = list(
        Checkpoint.objects.filter(pk__in=surplus)
        .exclude(pk__in=active.values("resume_from"))
        .exclude(pk__in=fork.held().values("checkpoint"))
        .select_for_update()
    )
    for checkpoint in removed:
        checkpoint.removed_at = timezone.now()
        checkpoint.save(update_fields=["removed_at"])

    def remove_files() -> None:
        for checkpoint in removed:
            storage.remove_run(run_id, checkpoint.path)

    transaction.on_commit(remove_files)
    return len(removed)
