"""Checkpoints: the manifest is ours, the files lie on the run's storage."""

from django.db import transaction
from django.utils import timezone

from webapp import storage
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.experiments.models import Attempt, Checkpoint
from webapp.problems import conflict


@transaction.atomic
def remove_checkpoint(checkpoint: Checkpoint, user: User | None) -> None:
    """Remove the files on commit; the row stays. Refused while an attempt resumes from it."""
    if Attempt.objects.filter(resume_from=checkpoint, ended_at=None).exists():
        raise conflict("An attempt is resuming from this checkpoint: wait until it has ended.")
    checkpoint.removed_at = timezone.now()
    checkpoint.save(update_fields=["removed_at"])
    record("checkpoint.remove", checkpoint.pk, user=user, project=checkpoint.run.project)
    transaction.on_commit(lambda: storage.remove_run(checkpoint.run_id, checkpoint.path))
