"""Index rows of stored trajectories, and what people say about them."""

from django.conf import settings
from django.db import models

from webapp import ids
from webapp.accounts.models import Project
from webapp.experiments.models import Attempt, Run

USER = settings.AUTH_USER_MODEL


class Trajectory(models.Model):
    """Where a trajectory lies (shard and byte range), and what lists and filters need."""

    id = models.CharField(primary_key=True, max_length=40)  # given by the rollout worker
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trajectories")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    shard = models.CharField(max_length=64)
    offset = models.BigIntegerField()
    length = models.BigIntegerField()
    task_id = models.CharField(max_length=80)
    group_id = models.CharField(max_length=80)
    category = models.CharField(max_length=40)
    purpose = models.CharField(max_length=14)
    prompt = models.CharField(max_length=500)
    stop_reason = models.CharField(max_length=20)
    reward = models.FloatField(null=True)  # null: invalid, never zero
    success = models.BooleanField()
    steps = models.PositiveIntegerField()
    calls = models.PositiveIntegerField()
    failed_calls = models.PositiveIntegerField()
    sampled_tokens = models.PositiveIntegerField()
    tokens = models.PositiveIntegerField()
    version_min = models.IntegerField()
    version_max = models.IntegerField()
    worker = models.CharField(max_length=80)
    started_at = models.DateTimeField()
    duration_s = models.FloatField()
    cursor = models.BigIntegerField()

    class Meta:
        indexes = [
            models.Index(fields=["run", "-cursor", "-id"], name="trajectory_newest"),
            models.Index(fields=["run", "task_id"], name="trajectory_by_task"),
            models.Index(fields=["run", "group_id"], name="trajectory_by_group"),
        ]


class Comment(models.Model):
    """Anchored to a trajectory, to one of its steps, or to a span of that step's text."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.comment_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    trajectory = models.ForeignKey(Trajectory, on_delete=models.CASCADE, related_name="comments")
    step = models.PositiveIntegerField(null=True)
    start = models.PositiveIntegerField(null=True)  # characters of the step's text
    stop = models.PositiveIntegerField(null=True)
    text = models.TextField(max_length=10_000)  # Markdown
    author = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    edited_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
