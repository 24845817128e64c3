"""Experiments, runs and their attempts, stages, checkpoints; presets."""

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from webapp import ids
from webapp.accounts.models import Project

USER = settings.AUTH_USER_MODEL


class State(models.TextChoices):
    """Of runs, attempts and jobs. See `services` for the transitions."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    UNREACHABLE = "unreachable"  # heartbeats are missing, Ray still says it runs
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # Caravan itself was stopped; the next start resumes it
    LOST = "lost"  # heartbeats are missing and Ray knows nothing of it

    @property
    def is_active(self) -> bool:
        return self in ACTIVE_STATES


ACTIVE_STATES = (
    State.QUEUED,
    State.STARTING,
    State.RUNNING,
    State.UNREACHABLE,
    State.STOPPING,
)


# Fields of a run that may hold a megabyte each: lists of many runs do without them.
HEAVY_FIELDS = ("spec", "full_spec", "summary", "notes")
HEAVY_BY_RUN = tuple(f"run__{name}" for name in HEAVY_FIELDS)  # from rows that refer to a run


class Experiment(models.Model):
    """A question: its notes, its pinned baseline, and the runs that answer it."""

    id = models.CharField(
        primary_key=True, max_length=24, default=ids.experiment_id, editable=False
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="experiments")
    name = models.CharField(max_length=120)
    notes = models.TextField(blank=True)  # Markdown
    baseline = models.ForeignKey("Run", null=True, on_delete=models.SET_NULL, related_name="+")
    archived_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("project", Lower("name"), name="experiment_name_once")
        ]

    def __str__(self) -> str:
        return self.name


class Run(models.Model):
    """One frozen spec. What changes is its state, and what people wish of it."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.run_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="runs")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="runs")
    name = models.CharField(max_length=120)
    number = models.PositiveIntegerField(default=0)  # within the project; gives the run its colour
    notes = models.TextField(blank=True)  # Markdown
    tags = ArrayField(models.CharField(max_length=40), default=list)
    spec = models.JSONField()
    spec_hash = models.CharField(max_length=64)
    # What repeats with other seeds have in common: a digest of the spec but for seed and labels.
    variant = models.GeneratedField(
        expression=models.Func(
            "spec",
            template="md5(((%(expressions)s - '{seed,name,description,tags}'::text[])"
            " #- '{config,seed}'::text[])::text)",
        ),
        output_field=models.CharField(max_length=32),
        db_persist=True,
    )
    code_version = models.CharField(max_length=64, blank=True)
    reward_scheme = models.ForeignKey(
        "RewardSchemeVersion", null=True, on_delete=models.PROTECT, related_name="runs"
    )
    parent = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="children"
    )
    # That the run starts from, of its parent; it copies it before its first stage.
    checkpoint = models.ForeignKey(
        "Checkpoint", null=True, on_delete=models.SET_NULL, related_name="forks"
    )
    priority = models.SmallIntegerField(default=0)  # in the project's queue; higher goes first
    full_spec = models.JSONField(null=True)  # of a dry run: the spec that it tries
    is_demo = models.BooleanField(default=False)
    is_external = models.BooleanField(default=False)  # its trainer is not ours: no driver, no Ray
    archived_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    state = models.CharField(max_length=12, choices=State.choices, default=State.QUEUED)
    state_reason = models.TextField(blank=True)
    wish = models.CharField(
        max_length=9,
        choices=[("run", "run"), ("stop", "stop"), ("interrupt", "interrupt")],
        default="run",
    )
    stop_asked_at = models.DateTimeField(null=True)
    pause_rollouts = models.BooleanField(default=False)
    pause_training = models.BooleanField(default=False)
    # Advanced under this row's lock inside every ingest transaction: what live pages ask "after".
    cursor = models.BigIntegerField(default=0)
    has_stale_series = models.BooleanField(default=False)  # with points that no roll-up holds yet
    phase = models.CharField(max_length=40, blank=True)
    stage = models.PositiveIntegerField(default=0)
    step = models.PositiveIntegerField(default=0)
    steps = models.PositiveIntegerField(default=0)
    # Newest finite value of each headline metric: {name: value}, for lists and sparklines.
    headline = models.JSONField(default=dict)
    summary = models.JSONField(default=dict)  # what the driver reported at its end

    class Meta:
        indexes = [
            models.Index(fields=["project", "-created_at", "-id"], name="run_newest"),
            models.Index(fields=["state"], name="run_active", condition=Q(ended_at=None)),
            GinIndex(fields=["tags"], name="run_tags"),
            models.Index(fields=["id"], name="run_stale", condition=Q(has_stale_series=True)),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_dry_run(self) -> bool:
        return self.full_spec is not None

    @property
    def asked_spec(self) -> dict[str, Any]:
        """What was asked for: a dry run's own spec is that on tiny amounts."""
        asked: dict[str, Any] = self.full_spec or self.spec
        return asked


class Attempt(models.Model):
    """One process tree that worked on a run. A newer attempt revokes the older one's token."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.attempt_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=12, choices=State.choices, default=State.QUEUED)
    state_reason = models.TextField(blank=True)
    resume_from = models.ForeignKey(
        "Checkpoint", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    code_version = models.CharField(max_length=64, blank=True)  # as its driver reported it
    ray_job_id = models.CharField(max_length=80, blank=True)
    ticket_digest = models.CharField(max_length=64, blank=True)
    ticket_expires_at = models.DateTimeField(null=True)
    token_digest = models.CharField(max_length=64, blank=True)
    revoked_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True)
    submitted_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="attempt_once")]
        indexes = [
            models.Index(fields=["token_digest"], name="attempt_by_token"),
            models.Index(fields=["state"], name="attempt_active", condition=Q(ended_at=None)),
        ]

    @property
    def runs_other_code(self) -> bool:
        """Whether it works with other code than the run was launched with, as far as both tell."""
        launched_with = self.run.code_version
        return bool(self.code_version and launched_with and self.code_version != launched_with)


class Stage(models.Model):
    """Progress of one stage of an attempt, as the driver reported it."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="stages")
    index = models.PositiveIntegerField()
    name = models.CharField(max_length=40)
    state = models.CharField(max_length=7)  # running | done
    step = models.PositiveIntegerField(default=0)
    steps = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    summary = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "index"], name="stage_once")]


class Checkpoint(models.Model):
    """A complete checkpoint on run storage: its manifest, never its weights."""

    id = models.CharField(
        primary_key=True, max_length=24, default=ids.checkpoint_id, editable=False
    )
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="checkpoints")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    stage = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    policy_version = models.PositiveIntegerField()
    path = models.CharField(max_length=500)  # relative to the run's storage
    parent_path = models.CharField(max_length=500, default="")  # of the one its stage began with
    files = models.JSONField()  # {name: {size, sha256}}
    final = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "path"], name="checkpoint_once")]
        indexes = [models.Index(fields=["run", "-created_at"], name="checkpoint_newest")]


class Upload(models.Model):
    """That a run sent these bytes: to nothing else may its trajectories and checkpoints refer."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="uploads")
    sha256 = models.CharField(max_length=64)  # names the blob in storage
    size = models.PositiveBigIntegerField()  # bytes
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "sha256"], name="upload_once")]
        indexes = [models.Index(fields=["sha256"], name="upload_by_blob")]


class Removal(models.Model):
    """Files of a deleted run that still lie in storage."""

    kind = models.CharField(max_length=4, choices=[("run", "run"), ("blob", "blob")])
    name = models.CharField(max_length=64)  # id of the run, or SHA-256 of the blob
    created_at = models.DateTimeField(auto_now_add=True)


class Preset(models.Model):
    """A recipe that a team saved."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.preset_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="presets")
    name = models.CharField(max_length=120)
    text = models.TextField()  # YAML, as written
    created_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint("project", Lower("name"), name="preset_name_once")]


class StageDataset(models.Model):
    """That a stage of a run learns from a version or practises on its tasks, or that the run's
    evaluations play them (`stage` is None then): only those may the run's attempts read."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="stage_datasets")
    stage = models.PositiveIntegerField(null=True)
    version = models.ForeignKey(
        "DatasetVersion", on_delete=models.PROTECT, related_name="stage_datasets"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "stage"], name="stage_dataset_once", nulls_distinct=False
            )
        ]
