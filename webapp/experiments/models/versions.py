"""Reward schemes and datasets: names with immutable versions."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower

from webapp import ids
from webapp.accounts.models import Project

USER = settings.AUTH_USER_MODEL


class RewardScheme(models.Model):
    id = models.CharField(primary_key=True, max_length=24, default=ids.scheme_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="reward_schemes")
    name = models.CharField(max_length=80)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint("project", Lower("name"), name="scheme_name_once")]

    def __str__(self) -> str:
        return self.name


class RewardSchemeVersion(models.Model):
    """Immutable: a change is a new version."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.version_id, editable=False)
    scheme = models.ForeignKey(RewardScheme, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    definition = models.JSONField()  # engine.rewards.scheme.RewardScheme
    digest = models.CharField(max_length=64)
    note = models.CharField(max_length=400, blank=True)
    created_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["scheme", "number"], name="scheme_version_once")
        ]


class Dataset(models.Model):
    id = models.CharField(primary_key=True, max_length=24, default=ids.dataset_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="datasets")
    name = models.CharField(max_length=80)
    kind = models.CharField(
        max_length=12,
        choices=[(k, k) for k in ("tasks", "trajectories", "pairs", "step_labels")],
    )
    last_number = models.PositiveIntegerField(default=0)  # given to a version, deleted or not
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint("project", Lower("name"), name="dataset_name_once")]

    def __str__(self) -> str:
        return self.name


class DatasetVersion(models.Model):
    """Immutable rows in one blob (zstd JSON lines), with where they came from."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.version_id, editable=False)
    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    blob = models.CharField(max_length=64)  # SHA-256, names the blob in storage
    rows = models.PositiveIntegerField()
    size = models.PositiveBigIntegerField()  # bytes of the blob
    categories = models.JSONField(default=dict)  # rows by category
    # Rows by difficulty, or by number of hops where that is said: [[from, to, rows], ...].
    difficulties = models.JSONField(default=list)
    source = models.JSONField(default=dict)  # {kind: upload|run|labels, ...ids}
    note = models.CharField(max_length=400, blank=True)
    created_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dataset", "number"], name="dataset_version_once")
        ]
