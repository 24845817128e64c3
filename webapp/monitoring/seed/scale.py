"""Sizes that the bars of the pages are measured on. The database makes the rows where it can."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from engine.records.shards import write_shard
from webapp import ids
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Attempt, Run
from webapp.experiments.services.launch import find_experiment
from webapp.monitoring.headline import METRICS
from webapp.monitoring.models import Series
from webapp.monitoring.rollups import roll_up
from webapp.monitoring.seed import driver, episodes, long_episode

Say = Callable[[str], None]
GROUP = 8  # trajectories of one task
SHARD = 500  # trajectories in one shard
LONG = "long/value"  # the series with a million points
_ALGORITHMS = ("cispo", "grpo", "ppo", "dapo")

# A last value that differs by run and metric and is the same at every seeding: a hash in [0, 1).
_SERIES = """
    INSERT INTO monitoring_series
        (run_id, attempt_id, name, axis, last_step, last_at, last_value, cursor, rolled)
    SELECT run.id, attempt.id, metric.name, 'trainer_step', 69,
        extract(epoch FROM run.ended_at),
        (hashtext(run.name || metric.name)::bigint & 65535) / 65536.0, 1, 1
    FROM experiments_run AS run
    JOIN experiments_attempt AS attempt ON attempt.run_id = run.id
    CROSS JOIN unnest(%s::text[]) AS metric (name)
    WHERE run.experiment_id = %s
"""
_POINTS = """
    INSERT INTO monitoring_point (series_id, step, at, value, cursor)
    SELECT series.id, series.last_step, series.last_at, series.last_value, 1
    FROM monitoring_series AS series
    JOIN experiments_run AS run ON run.id = series.run_id
    WHERE run.experiment_id = %s
"""
_HEADLINES = """
    UPDATE experiments_run AS run SET headline = found.headline
    FROM (
        SELECT series.run_id, jsonb_object_agg(series.name, series.last_value) AS headline
        FROM monitoring_series AS series
        WHERE series.name = ANY(%s) GROUP BY series.run_id
    ) AS found
    WHERE found.run_id = run.id AND run.experiment_id = %s
"""
_LONG = """
    INSERT INTO monitoring_point (series_id, step, at, value, cursor)
    SELECT %(series)s, step, %(at)s + step,
        sin(step / 20000.0) + ((hashint4(step) & 1023) - 512) / 2048.0, %(cursor)s
    FROM generate_series(0, %(points)s - 1) AS step
"""


@dataclass(frozen=True)
class Sizes:
    """How much is made; the bars name the numbers of factor 1."""

    runs: int
    metrics: int  # of each of the runs
    points: int  # of one series
    trajectories: int
    steps: int  # of one more trajectory, whose results have 20,000 characters a step

    @classmethod
    def of(cls, factor: float) -> "Sizes":
        def scaled(size: int, least: int) -> int:
            return max(least, round(size * factor))

        return cls(
            runs=scaled(5000, 5),
            metrics=scaled(200, 20),
            points=scaled(1_000_000, 1000),
            trajectories=scaled(10_000, GROUP),
            steps=scaled(long_episode.STEPS, 40),
        )


def make(project: Project, user: User, spec: Any, sizes: Sizes, say: Say) -> None:
    """Everything of these sizes, beside what the project has; `say` is told of every part."""
    for what, part in (
        (f"{sizes.runs:,} runs with {sizes.metrics} metrics", many_runs),
        (f"a series of {sizes.points:,} points", long_series),
        (f"{sizes.trajectories:,} trajectories", trajectories),
        (f"a trajectory of {sizes.steps:,} steps", long_trajectory),
    ):
        began = time.monotonic()
        part(project, user, spec, sizes, say)
        say(f"{what}: {time.monotonic() - began:.0f} s")
    with connection.cursor() as sql:
        sql.execute("ANALYZE")  # a plan made for an empty table is a bad one


@transaction.atomic
def many_runs(project: Project, user: User, spec: Any, sizes: Sizes, say: Say) -> None:
    """Ended runs of one experiment, each metric with one point."""
    experiment = find_experiment(project, f"{sizes.runs:,} runs", user)
    launch = services.Launch(experiment="scale", name="copied", tags=["demo"])
    template = driver.begin(project, user, spec, launch, 0, time.time())
    driver.end(template, "succeeded")
    first = template.run
    first.refresh_from_db()
    now = timezone.now()
    made = [_copy(first, experiment.pk, index, now) for index in range(sizes.runs)]
    Run.objects.bulk_create(made, batch_size=500)
    Run.objects.filter(experiment=experiment).update(created_at=F("started_at"))  # auto_now_add
    Attempt.objects.bulk_create(
        [
            Attempt(
                run=run, number=1, state=run.state, started_at=run.started_at, ended_at=run.ended_at
            )
            for run in made
        ],
        batch_size=500,
    )
    names = [*sorted(METRICS), *(f"tools/tool_{n:03}/latency_s" for n in range(sizes.metrics))]
    with connection.cursor() as sql:
        sql.execute(_SERIES, [names[: sizes.metrics], experiment.pk])
        sql.execute("ANALYZE experiments_run, monitoring_series")  # a plan for few runs never ends
        sql.execute(_POINTS, [experiment.pk])
        sql.execute(_HEADLINES, [sorted(METRICS), experiment.pk])


def _copy(first: Run, experiment: str, index: int, now: Any) -> Run:
    fields = {f.attname: getattr(first, f.attname) for f in Run._meta.concrete_fields}
    ended = now - timedelta(minutes=7 * index)
    spec = {
        **first.spec,
        "seed": index % 5,
        "stages": [
            {**stage, "algorithm": _ALGORITHMS[index // 5 % 4]} if "algorithm" in stage else stage
            for stage in first.spec["stages"]
        ],
    }
    fields |= {
        "id": ids.run_id(),
        "experiment_id": experiment,
        "name": f"{_ALGORITHMS[index // 5 % 4]}-{index:05}",
        "number": first.number + 1 + index,
        "tags": ["demo", *(["baseline"] if index % 5 == 0 else [])],
        "spec": spec,
        "state": ("succeeded", "succeeded", "succeeded", "stopped", "failed")[index % 5],
        "state_reason": "The loss was not finite." if index % 5 == 4 else "",
        "started_at": ended - timedelta(minutes=25),
        "ended_at": ended,
        "cursor": 1,
    }
    return Run(**fields)


@transaction.atomic
def long_series(project: Project, user: User, spec: Any, sizes: Sizes, say: Say) -> None:
    """A run with one series of very many points, rolled up as ingest would have done."""
    launch = services.Launch(experiment="scale", name="long series", tags=["demo"])
    made = driver.begin(project, user, spec, launch, 1, time.time())
    made.metrics("trainer-0", "trainer_step", 0, {LONG: 0.0})
    made.send()
    driver.end(made, "succeeded")
    series = Series.objects.get(run=made.run, name=LONG)
    with connection.cursor() as sql:
        sql.execute("DELETE FROM monitoring_point WHERE series_id = %s", [series.pk])
        values = {"series": series.pk, "points": sizes.points, "cursor": series.cursor}
        sql.execute(_LONG, {**values, "at": made.at})
    Series.objects.filter(pk=series.pk).update(
        last_step=sizes.points - 1, last_at=made.at + sizes.points - 1
    )
    roll_up([series.pk])


def trajectories(project: Project, user: User, spec: Any, sizes: Sizes, say: Say) -> None:
    """A run with very many stored trajectories, in shards, indexed by ingest."""
    launch = services.Launch(experiment="scale", name="trajectories", tags=["demo"])
    made = driver.begin(project, user, spec, launch, 2, time.time() - 3600)
    rng = made.course.random
    stored = 0
    for shard in _shards(rng, sizes.trajectories, made.at):
        blob, sha256, rows = write_shard(shard)
        services.put_upload(made.run.pk, blob, sha256)
        for start in range(0, len(rows), 100):
            part = rows[start : start + 100]
            made.report("rollout-0", kind="trajectories", shard=sha256, rows=part)
        made.send()
        stored += len(shard)
        say(f"  {stored:,} of {sizes.trajectories:,} trajectories")
    driver.end(made, "succeeded")


def long_trajectory(project: Project, user: User, spec: Any, sizes: Sizes, say: Say) -> None:
    """A run with one trajectory that no page may read whole."""
    launch = services.Launch(experiment="scale", name="long trajectory", tags=["demo"])
    made = driver.begin(project, user, spec, launch, 3, time.time() - 3600)
    factor = sizes.steps / long_episode.STEPS
    long = long_episode.long_episode(
        ids.new_id("trj"),
        ids.new_id("grp"),
        steps=sizes.steps,
        chars=round(factor * long_episode.CHARS),
        longest=round(factor * long_episode.LONGEST),
        started=made.at,
    )
    blob, sha256, rows = write_shard([long])
    services.put_upload(made.run.pk, blob, sha256)
    made.report("rollout-0", kind="trajectories", shard=sha256, rows=rows)
    made.send()
    driver.end(made, "succeeded")


def _shards(rng: random.Random, count: int, started: float) -> Iterator[list[Any]]:
    shard: list[Any] = []
    for index in range(count):
        if index % GROUP == 0:
            group, city = ids.new_id("grp"), rng.choice(list(episodes.CITIES))
            skill = rng.uniform(0.1, 0.95)
        shard.append(
            episodes.episode(
                rng,
                ids.new_id("trj"),
                group=group,
                version=index * 70 // count,
                skill=skill,
                started=started + index / 10,
                purpose="train",
                start_from=city,
            )
        )
        if len(shard) == SHARD or index == count - 1:
            yield shard
            shard = []
