"""What runs reported: series and points, roll-ups, pool, devices, phase spans, logs.

Every row carries the run's `cursor` of the transaction that stored it, so that a live page asks
for what came after the cursor it holds.
"""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from webapp.experiments.models import Attempt, Run


class Writer(models.Model):
    """One source of events of an attempt and which of its sequence numbers are stored already."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="writers")
    source = models.CharField(max_length=80)
    seen = models.BigIntegerField(default=0)  # every number up to this one is stored
    beyond = models.JSONField(default=list)  # stored numbers above `seen`, as [from, to] ranges

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "source"], name="writer_once")]


class Series(models.Model):
    """One metric of one attempt on one axis."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="series")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="series")
    name = models.CharField(max_length=120)
    axis = models.CharField(max_length=16)
    last_step = models.BigIntegerField(null=True)
    last_at = models.FloatField(null=True)
    last_value = models.FloatField(null=True)  # NaN and infinities as PostgreSQL stores them
    cursor = models.BigIntegerField(default=0)  # of the last transaction that stored a point
    rolled = models.BigIntegerField(default=0)  # up to this cursor, points are in the roll-ups

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "name", "axis"], name="series_once")
        ]
        # None knows a column that every batch changes: such a row would move in all of them.
        indexes = [models.Index(fields=["run", "name"], name="series_by_name")]


class Point(models.Model):
    """One value. The newest write of a step wins; storing it twice changes nothing.

    The database does not check the series of each point, which costs more than storing it: ingest
    has written the series in the same transaction, under the lock of their run.
    """

    pk = models.CompositePrimaryKey("series_id", "step")
    series = models.ForeignKey(
        Series, on_delete=models.CASCADE, db_index=False, db_constraint=False
    )
    step = models.BigIntegerField()
    at = models.FloatField()  # seconds since 1970
    value = models.FloatField()
    cursor = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["series", "cursor"], name="point_after")]


class Rollup(models.Model):
    """Points of a series in a bucket of 2**level steps, from step 0; recomputed when touched."""

    pk = models.CompositePrimaryKey("series_id", "level", "bucket")
    series = models.ForeignKey(Series, on_delete=models.CASCADE, db_index=False)
    level = models.PositiveSmallIntegerField()
    bucket = models.BigIntegerField()
    first = models.FloatField(null=True)
    last = models.FloatField(null=True)
    min = models.FloatField(null=True)
    max = models.FloatField(null=True)
    mean = models.FloatField(null=True)
    count = models.BigIntegerField()  # finite values
    nonfinite = models.BigIntegerField()
    at = models.FloatField()  # of the last point


class RunEvent(models.Model):
    """Pool snapshots, gate decisions, phase spans, logs, clocks, stages and gaps of a run."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    kind = models.CharField(max_length=12)
    source = models.CharField(max_length=80)
    seq = models.BigIntegerField()
    at = models.FloatField()
    cursor = models.BigIntegerField()
    data = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "source", "seq"], name="event_once")
        ]
        indexes = [models.Index(fields=["run", "kind", "cursor"], name="event_after")]


class TrialPart(models.Model):
    """What the trials of an evaluation came to, in little: the evaluation is the event of the same
    attempt whose data names this `path`, and how many parts it has."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="trial_parts")
    path = models.CharField(max_length=500)
    part = models.PositiveSmallIntegerField()
    tasks = ArrayField(models.TextField())
    categories = ArrayField(models.TextField())  # of each task
    results = ArrayField(models.TextField())  # of each task, a character for each trial
    trajectories = ArrayField(models.TextField())  # of each trial, those of the first task first

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "path", "part"], name="trial_part_once")
        ]


class DeviceSample(models.Model):
    """Utilisation and memory of the devices of a node; kept for a week."""

    node = models.CharField(max_length=80)
    at = models.FloatField()
    devices = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "at"], name="device_sample_once")]
        indexes = [models.Index(fields=["-at"], name="device_newest")]


class Gap(models.Model):
    """Telemetry that was dropped or thinned, recorded instead of invented."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="gaps")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    what = models.CharField(max_length=200)
    items = models.BigIntegerField()
    since = models.FloatField()
    at = models.FloatField()


class IngestPulse(models.Model):
    """One row: since when ingest has been up without a break. Its outages count against no run."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    up_since = models.DateTimeField()
    pulse_at = models.DateTimeField()
