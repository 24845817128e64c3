"""Jobs: long work that is no run, done by a process of its own."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from webapp import ids
from webapp.accounts.models import Project
from webapp.experiments.models.runs import State

USER = settings.AUTH_USER_MODEL


class Job(models.Model):
    """Its kind says what it does (`webapp.experiments.jobs`), its spec with what."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.job_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="jobs")
    kind = models.CharField(max_length=40)
    # What it is about, to find it again: an id, or a digest.
    subject = models.CharField(max_length=64, blank=True)
    title = models.CharField(max_length=200)
    spec = models.JSONField()
    state = models.CharField(max_length=12, choices=State.choices, default=State.QUEUED)
    state_reason = models.TextField(blank=True)
    done = models.PositiveBigIntegerField(default=0)
    total = models.PositiveBigIntegerField(null=True)  # null: nobody knows yet
    text = models.CharField(max_length=200, blank=True)  # what it does just now
    log = models.TextField(blank=True)
    result = models.JSONField(null=True)
    claim = models.CharField(max_length=16, blank=True)  # of the process that works on it
    heartbeat_at = models.DateTimeField(null=True)
    stop_asked_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(default=timezone.now)  # to the queue, the last time
    created_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "-created_at", "-id"], name="job_newest"),
            models.Index(fields=["project", "kind", "subject"], name="job_by_subject"),
            models.Index(fields=["state"], name="job_active", condition=Q(ended_at=None)),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes at the pace so far; None where that cannot be told."""
        if self.state != State.RUNNING or not self.done or not self.total or not self.started_at:
            return None
        elapsed = (timezone.now() - self.started_at).total_seconds()
        return elapsed * max(0, self.total - self.done) / self.done
