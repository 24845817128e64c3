"""Roll-ups: a series as at most so many buckets, on a power-of-two grid from step 0.

Buckets of 2**5, 2**10, 2**15 ... steps are stored and recomputed when a point in them is written
(so that what arrives twice counts once); other widths are put together from the next finer level
that is stored, or from the points themselves. Appending never moves an old bucket.
"""

from dataclasses import dataclass
from typing import Any

from django.db import connection

from webapp.experiments.models import Run
from webapp.monitoring.numbers import encode_optional
from webapp.monitoring.queries import series_of

STORED_LEVELS = (5, 10, 15, 20, 25)
MAX_BUCKETS = 1500

# Columns: bucket, first, last, min, max, mean, count (finite), nonfinite, at (of the last point).
_FROM_POINTS = """
    SELECT step >> %(level)s AS bucket,
        (array_agg(value ORDER BY step) FILTER (WHERE abs(value) < 'Infinity'))[1],
        (array_agg(value ORDER BY step DESC) FILTER (WHERE abs(value) < 'Infinity'))[1],
        min(value) FILTER (WHERE abs(value) < 'Infinity'),
        max(value) FILTER (WHERE abs(value) < 'Infinity'),
        avg(value) FILTER (WHERE abs(value) < 'Infinity'),
        count(*) FILTER (WHERE abs(value) < 'Infinity'),
        count(*) FILTER (WHERE NOT abs(value) < 'Infinity'),
        max(at)
    FROM monitoring_point
    WHERE series_id = %(series)s AND step >= %(start)s AND step < %(stop)s
    GROUP BY 1 ORDER BY 1
"""
_FROM_ROLLUPS = """
    SELECT bucket >> (%(level)s - %(stored)s) AS wide,
        (array_agg(first ORDER BY bucket) FILTER (WHERE count > 0))[1],
        (array_agg(last ORDER BY bucket DESC) FILTER (WHERE count > 0))[1],
        min(min), max(max), sum(mean * count) / nullif(sum(count), 0),
        sum(count)::bigint, sum(nonfinite)::bigint, max(at)
    FROM monitoring_rollup
    WHERE series_id = %(series)s AND level = %(stored)s
        AND bucket >= %(start)s >> %(stored)s AND bucket < %(stop)s >> %(stored)s
    GROUP BY 1 ORDER BY 1
"""


@dataclass(frozen=True)
class Rolled:
    """One series in buckets of 2**level steps; `buckets` are lists of COLUMNS, empty ones absent."""

    id: int
    name: str
    axis: str
    attempt: int
    level: int
    buckets: list[list[Any]]


COLUMNS = ["step", "first", "last", "min", "max", "mean", "count", "nonfinite", "at"]


def rolled(
    run: Run,
    names: list[str],
    *,
    axis: str | None = None,
    start: int | None = None,
    stop: int | None = None,
    buckets: int = MAX_BUCKETS,
) -> list[Rolled]:
    """The named series between two steps (both included), each in at most `buckets` buckets."""
    buckets = max(1, min(buckets, MAX_BUCKETS))
    found = []
    for series in series_of(run, names=names):
        if axis is not None and series.axis != axis:
            continue
        first, last = _range(series.pk, series.last_step)
        low = first if start is None else max(first, start)
        high = last if stop is None else min(last, stop)
        level = level_for(low, high, buckets)
        rows = _buckets(series.pk, level, low, high) if low <= high else []
        found.append(
            Rolled(series.pk, series.name, series.axis, series.attempt.number, level, rows)
        )
    return found


def level_for(low: int, high: int, buckets: int) -> int:
    """The finest level at which the steps from low to high fall into at most `buckets` buckets."""
    level = 0
    while (high >> level) - (low >> level) + 1 > buckets:
        level += 1
    return level


def _range(series_id: int, last_step: int | None) -> tuple[int, int]:
    with connection.cursor() as sql:
        sql.execute("SELECT min(step) FROM monitoring_point WHERE series_id = %s", [series_id])
        first = sql.fetchone()[0]
    return (0, -1) if first is None or last_step is None else (first, last_step)


def _buckets(series_id: int, level: int, low: int, high: int) -> list[list[Any]]:
    """Whole buckets: those at the ends reach beyond low and high."""
    stored = max((known for known in STORED_LEVELS if known <= level), default=None)
    values = {
        "series": series_id,
        "level": level,
        "stored": stored,
        "start": low >> level << level,
        "stop": ((high >> level) + 1) << level,
    }
    with connection.cursor() as sql:
        sql.execute(_FROM_POINTS if stored is None else _FROM_ROLLUPS, values)
        return [
            [bucket << level, *map(encode_optional, numbers), count, nonfinite, at]
            for bucket, *numbers, count, nonfinite, at in sql.fetchall()
        ]
