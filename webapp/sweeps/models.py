"""Sweeps, their trials, the runs of these, one for each seed, and what they brought to rungs."""

from django.conf import settings
from django.db import models
from django.db.models import Prefetch, Q, QuerySet

from engine.evaluation.intervals import Interval
from engine.evaluation.student import mean_interval, sample
from webapp import ids
from webapp.accounts.models import Project
from webapp.experiments.models import HEAVY_BY_RUN, Experiment, Run

USER = settings.AUTH_USER_MODEL


class SweepState(models.TextChoices):
    RUNNING = "running"
    PAUSED = "paused"  # begins no trial; those at work go on
    FINISHED = "finished"
    STOPPED = "stopped"


class TrialState(models.TextChoices):
    ACTIVE = "active"  # not all of its runs have ended
    COMPLETE = "complete"
    PRUNED = "pruned"  # stopped at a rung, from which it may be promoted later
    STOPPED = "stopped"  # by a person
    FAILED = "failed"  # a run of it failed, or reported no such metric
    REFUSED = "refused"  # the spec refuses these values: it has no run


class Sweep(models.Model):
    """A frozen spec and plan. What changes is how far it is, and what people wish of it."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.sweep_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="sweeps")
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="sweeps")
    name = models.CharField(max_length=100)
    notes = models.TextField(blank=True)
    base = models.JSONField()  # the spec whose fields vary, as data
    plan = models.JSONField()  # webapp.sweeps.plan.SweepPlan
    state = models.CharField(max_length=8, choices=SweepState.choices, default=SweepState.RUNNING)
    state_reason = models.TextField(blank=True)
    created_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL, related_name="+")
    # Who launches its trials: who made it, or who continued it last.
    acts_for = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL, related_name="+")
    # Failures of trials before this number were known to who continued the sweep.
    watched_from = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "-created_at", "-id"], name="sweep_newest"),
            models.Index(fields=["state"], name="sweep_active", condition=Q(ended_at=None)),
        ]

    def __str__(self) -> str:
        return self.name


class Trial(models.Model):
    """One combination of values."""

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="trials")
    number = models.PositiveIntegerField()  # from 0
    params = models.JSONField()  # value by path into the spec
    asked = models.PositiveIntegerField(null=True)  # number in Optuna's study, which made it up
    state = models.CharField(max_length=8, choices=TrialState.choices, default=TrialState.ACTIVE)
    value = models.FloatField(null=True)  # of the metric, its mean over seeds, once it has ended
    message = models.TextField(blank=True)
    told = models.BooleanField(default=False)  # that it ended, to the search

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["sweep", "number"], name="trial_once"),
            models.UniqueConstraint(fields=["sweep", "asked"], name="trial_asked_once"),
        ]
        indexes = [models.Index(fields=["sweep", "state"], name="trial_by_state")]

    @property
    def band(self) -> Interval | None:
        """Student's 95% interval of the mean over seeds; None before the end and of one seed."""
        values = [one.value for one in self.runs.all() if one.value is not None]
        if self.value is None or len(values) < 2:
            return None
        return mean_interval(sample(values))

    @property
    def step(self) -> int | None:
        """How far its runs are: the one that is behind; None: it has none."""
        return min((one.run.step for one in self.runs.all() if one.run is not None), default=None)

    @property
    def was_promoted(self) -> bool:
        return any(one.promoted_at is not None for one in self.rungs.all())


class TrialRun(models.Model):
    """A trial's run of one seed."""

    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="runs")
    run = models.OneToOneField(
        Run, null=True, on_delete=models.SET_NULL, related_name="trial_run"
    )  # None: it was deleted
    seed = models.BigIntegerField()
    value = models.FloatField(null=True)  # of the metric, once the trial has ended

    class Meta:
        constraints = [models.UniqueConstraint(fields=["trial", "seed"], name="trial_seed_once")]


class Arrival(models.Model):
    """What a trial brought to a rung, and whether it went on from there."""

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="arrivals")
    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="rungs")
    rung = models.PositiveSmallIntegerField()  # from 0
    step = models.PositiveBigIntegerField()
    value = models.FloatField()  # mean over seeds; may be NaN or infinite
    rank = models.PositiveIntegerField()  # when it came there, from 1, the best
    of = models.PositiveIntegerField()  # trials that were there, this one among them
    stays = models.BooleanField()  # goes on, at once or since it was promoted
    promoted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["trial", "rung"], name="arrival_once")]
        indexes = [models.Index(fields=["sweep", "rung", "value"], name="arrival_ranked")]


def with_runs(trials: QuerySet[Trial]) -> QuerySet[Trial]:
    """With their runs, by seed, and what they brought to rungs."""
    runs = TrialRun.objects.select_related("run").defer(*HEAVY_BY_RUN).order_by("seed")
    return trials.prefetch_related(
        Prefetch("runs", runs), Prefetch("rungs", Arrival.objects.order_by("rung"))
    )
