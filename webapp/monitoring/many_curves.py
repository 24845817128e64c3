"""Curves of many runs at once, and the mean curve of each group of runs with its band.

The number of queries depends neither on the number of runs nor on that of metrics.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from engine.evaluation.student import mean_interval, sample
from webapp.experiments.models import Run
from webapp.monitoring.models import Series
from webapp.monitoring.rollups import Rolled, rolled_series

WIDEST = 40  # no bucket is wider than 2**40 steps
CLOCKS = """
    SELECT run_id, number, at, (data->>'trainer_step')::bigint, (data->>'rollout_step')::bigint,
        (data->>'environment_step')::bigint, (data->>'tokens')::bigint
    FROM (
        SELECT event.run_id, attempt.number, event.at, event.data,
            row_number() OVER newest AS place,
            count(*) OVER (PARTITION BY event.run_id) AS number_of
        FROM monitoring_runevent AS event
        JOIN experiments_attempt AS attempt ON attempt.id = event.attempt_id
        WHERE event.run_id = ANY(%s) AND event.kind = 'clock'
        WINDOW newest AS (PARTITION BY event.run_id ORDER BY event.at DESC, event.id DESC)
    ) AS numbered
    WHERE (place - 1) %% greatest(1, (number_of + %s - 1) / %s) = 0
    ORDER BY run_id, at
"""


def series_named(runs: Sequence[Run], names: Iterable[str]) -> list[Series]:
    """The series of these names with their attempts, older attempts first."""
    found = Series.objects.filter(run__in=[run.pk for run in runs], name__in=list(names))
    return list(found.select_related("attempt").order_by("name", "attempt__number", "axis", "pk"))


def curves(
    runs: Sequence[Run], names: Sequence[str], buckets: int, bare: bool = False
) -> list[dict[str, Any]]:
    """As `runs/{id}/points`, each with its run; `bare`: see `rolled_series`."""
    found = series_named(runs, names)
    rolled = rolled_series(found, buckets=buckets, bare=bare)
    return [{"run": series.run_id, **vars(one)} for series, one in zip(found, rolled, strict=True)]


def clocks_of(runs: Sequence[Run], limit: int = 100) -> dict[str, list[list[Any]]]:
    """`monitoring.queries.clocks` of each run, thinned evenly, the newest always among them."""
    rows: dict[str, list[list[Any]]] = {run.pk: [] for run in runs}
    with connection.cursor() as sql:
        sql.execute(CLOCKS, [list(rows), limit, limit])
        for run, *clock in sql.fetchall():
            rows[run].append(clock)
    return rows


@dataclass
class Band:
    """The mean of a metric over the runs of a group, by bucket of 2**level steps.

    `low` and `high` end the 95% t-interval of the mean over the runs; they are None where a single
    run has a value. `n` runs have a value in the bucket; up to `whole_until` all of them do, and
    beyond it those that went on are a choice among the runs. `left_out` buckets are not shown,
    because a run that went on has no value there.
    """

    name: str
    axis: str
    level: int
    runs: int  # of the group, that have the metric
    steps: list[int] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    low: list[float | None] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    n: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)  # newest measurement of the bucket
    whole_until: int | None = None  # step; None: no bucket has all runs
    left_out: int = 0
    nonfinite: int = 0  # buckets in which a run measured something that is no number


@dataclass(frozen=True)
class _Value:
    mean: float
    at: float


def bands(groups: Sequence[Sequence[Run]], names: Sequence[str], buckets: int) -> list[list[Band]]:
    """For each group its bands, of each metric that one of its runs has.

    All curves of a metric and axis get one bucket width: the finest that fits, or, where runs
    measure at steps of their own, the finest at which most buckets have a value of every run.
    """
    runs = [run for group in groups for run in group]
    series = series_named(runs, names)
    rolled = rolled_series(series, buckets=buckets)
    by_metric: dict[tuple[str, str], list[tuple[str, Rolled]]] = {}
    for row, one in zip(series, rolled, strict=True):
        by_metric.setdefault((one.name, one.axis), []).append((row.run_id, one))
    found: list[list[Band]] = [[] for _ in groups]
    for (name, axis), curves_of in by_metric.items():
        level = max(one.level for _, one in curves_of)
        for place, group in enumerate(groups):
            members = {run.pk for run in group}
            own = [(run, one) for run, one in curves_of if run in members]
            if own:
                found[place].append(_band(name, axis, level, own))
    return found


def _band(name: str, axis: str, level: int, own: list[tuple[str, Rolled]]) -> Band:
    while level < WIDEST:
        by_run, bad = _values(own, level)
        shown, left_out = _covered(by_run)
        if len(shown) >= left_out:
            break
        level += 1
    band = Band(name, axis, level, len(by_run), left_out=left_out, nonfinite=bad)
    for bucket in shown:
        values = [values[bucket] for values in by_run.values() if bucket in values]
        of = sample([value.mean for value in values])
        ends = mean_interval(of)
        band.steps.append(bucket << level)
        band.mean.append(of.mean)
        band.low.append(ends.lower if ends else None)
        band.high.append(ends.upper if ends else None)
        band.least.append(min(value.mean for value in values))
        band.most.append(max(value.mean for value in values))
        band.n.append(of.n)
        band.at.append(max(value.at for value in values))
        if of.n == len(by_run):
            band.whole_until = bucket << level
    return band


def _values(own: list[tuple[str, Rolled]], level: int) -> tuple[dict[str, dict[int, _Value]], int]:
    """By run and bucket the mean of its finite values; of two attempts' the newer one's."""
    by_run: dict[str, dict[int, _Value]] = {}
    bad = set()
    for run, one in own:  # older attempts first
        sums: dict[int, tuple[float, int, float]] = {}
        for step, _first, _last, _min, _max, mean, count, nonfinite, at in one.buckets:
            bucket = step >> level
            if nonfinite:
                bad.add((run, bucket))
            if count:
                total, number, _ = sums.get(bucket, (0.0, 0, at))
                sums[bucket] = (total + mean * count, number + count, at)
        values = by_run.setdefault(run, {})
        values |= {bucket: _Value(total / n, at) for bucket, (total, n, at) in sums.items()}
    return {run: values for run, values in by_run.items() if values}, len(bad)


def _covered(by_run: dict[str, dict[int, _Value]]) -> tuple[list[int], int]:
    """Buckets in which every run that has begun and not yet ended has a value, and how many
    others there are. Nothing is interpolated."""
    spans = [(min(values), max(values), values) for values in by_run.values()]
    buckets = sorted(set().union(*by_run.values())) if by_run else []
    shown = [
        bucket
        for bucket in buckets
        if all(bucket in values for first, last, values in spans if first <= bucket <= last)
    ]
    return shown, len(buckets) - len(shown)
