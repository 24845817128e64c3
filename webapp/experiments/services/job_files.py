"""The file that a job made: where it lies among those of its run, and when it goes."""

from datetime import timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from webapp import storage
from webapp.experiments.models import Job, Run, State

EXPORT = "export"
EXPORTS_KEPT = timedelta(days=7)
FOLDER = "exports"


def path_of(job: Job) -> str:
    """In the folder of the run that the job is about. By its claim: a process that was given up
    may still write."""
    return f"{FOLDER}/{job.pk}/{job.claim}"


def files_of(project_id: str) -> QuerySet[Job, tuple[str, str, int]]:
    """(run, job, bytes) of the exports whose file is there."""
    done = Job.objects.filter(project=project_id, kind=EXPORT, state=State.SUCCEEDED)
    runs = Run.objects.filter(project=project_id)  # the files of a deleted one went with it
    held = done.filter(subject__in=runs.values("pk"), result__removed_at__isnull=True).order_by(
        "subject", "pk"
    )
    return held.values_list("subject", "pk", "result__file__bytes")


def remove_old_exports() -> int:
    """Remove the files of exports that are old, and what those left that came to no end; how many
    were looked at."""
    old = Q(state=State.SUCCEEDED, ended_at__lt=timezone.now() - EXPORTS_KEPT)
    ended = Job.objects.filter(kind=EXPORT, result__removed_at__isnull=True).exclude(ended_at=None)
    jobs = list(ended.filter(old | ~Q(state=State.SUCCEEDED))[:1000])
    for job in jobs:
        remove_export(job.pk)
    return len(jobs)


@transaction.atomic
def remove_export(job_id: str) -> bool:
    """Remove the file of an export that has ended; the job stays, and says so. False: it is gone
    already."""
    job = Job.objects.select_for_update(no_key=True, of=("self",)).filter(pk=job_id).first()
    if job is None or job.ended_at is None or "removed_at" in (job.result or {}):
        return False
    if Run.objects.filter(pk=job.subject).exists():  # those of a deleted run went with it
        storage.remove_run(job.subject, f"{FOLDER}/{job.pk}")
    job.result = {**(job.result or {}), "removed_at": timezone.now().isoformat()}
    job.save(update_fields=["result"])
    return True
