"""Sweeps and their trials. A trial is a run with its place in a sweep, or why there is none."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from webapp import ids
from webapp.accounts.models import Project
from webapp.experiments.models import Experiment, Run

USER = settings.AUTH_USER_MODEL


class SweepState(models.TextChoices):
    RUNNING = "running"
    PAUSED = "paused"  # begins no trial; those at work go on
    FINISHED = "finished"
    STOPPED = "stopped"


class TrialState(models.TextChoices):
    ACTIVE = "active"  # its run has not ended
    COMPLETE = "complete"
    PRUNED = "pruned"  # stopped at a rung
    STOPPED = "stopped"  # by a person
    FAILED = "failed"  # its run failed, or reported no such metric
    REFUSED = "refused"  # the spec refuses these values: there is no run


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
    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="trials")
    number = models.PositiveIntegerField()  # from 0
    run = models.OneToOneField(Run, null=True, on_delete=models.SET_NULL, related_name="trial")
    params = models.JSONField()  # value by path into the spec
    asked = models.PositiveIntegerField(null=True)  # number in Optuna's study, which made it up
    state = models.CharField(max_length=8, choices=TrialState.choices, default=TrialState.ACTIVE)
    value = models.FloatField(null=True)  # of the metric, once the trial has ended
    message = models.TextField(blank=True)
    # What it brought to each rung, in order: [{step, value, rank, of, at}], decided once.
    rungs = models.JSONField(default=list)
    told = models.BooleanField(default=False)  # that it ended, to the search

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["sweep", "number"], name="trial_once"),
            models.UniqueConstraint(fields=["sweep", "asked"], name="trial_asked_once"),
        ]
