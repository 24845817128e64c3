"""Points and their series, each as one set-based statement."""

import math
from dataclasses import dataclass
from typing import Any

from psycopg import Cursor

from engine.records.events import Metrics
from webapp.monitoring.bulk import numbers
from webapp.monitoring.headline import METRICS

Key = tuple[str, str]  # (name, axis)

_SERIES = """
    INSERT INTO monitoring_series
        (run_id, attempt_id, name, axis, last_step, last_at, last_value, cursor, rolled)
    SELECT %(run)s, %(attempt)s, given.*, %(cursor)s, 0
    FROM unnest(%(names)s::text[], %(axes)s::text[], %(steps)s::bigint[],
                %(ats)s::float8[], %(values)s::float8[]) AS given
    ON CONFLICT (attempt_id, name, axis) DO UPDATE SET
        cursor = excluded.cursor,
        (last_step, last_at, last_value) = (
            SELECT step, at, value FROM (VALUES
                (excluded.last_step, excluded.last_at, excluded.last_value, 1),
                (monitoring_series.last_step, monitoring_series.last_at,
                 monitoring_series.last_value, 0)
            ) AS both_of_them (step, at, value, given)
            ORDER BY step DESC, at DESC, given DESC LIMIT 1
        )
    RETURNING id, name, axis, last_step, last_at, last_value
"""
# Where two items give one step, the one that was measured later wins, in whatever order they come.
_POINTS = """
    INSERT INTO monitoring_point (series_id, step, at, value, cursor)
    SELECT given.*, %(cursor)s
    FROM unnest(%(series)s::bigint[], %(steps)s::bigint[],
                %(ats)s::float8[], %(values)s::float8[]) AS given
    ON CONFLICT (series_id, step) DO UPDATE SET
        at = excluded.at, value = excluded.value, cursor = excluded.cursor
    WHERE excluded.at >= monitoring_point.at
"""


@dataclass(frozen=True)
class StoredPoints:
    count: int
    headline: dict[str, float]  # newest finite values of headline metrics in this batch


def store_points(
    sql: Cursor[Any], run_id: str, attempt_id: str, cursor: int, items: list[Metrics]
) -> StoredPoints:
    """Store every value of the items, in the caller's transaction."""
    given: dict[Key, dict[int, tuple[float, float]]] = {}  # step -> (at, value), newest by `at`
    count = 0
    for item in items:
        step, at, axis, values = item.step, item.at, item.axis, item.values
        count += len(values)
        for name, value in values.items():
            series = given.get((name, axis))
            if series is None:
                given[name, axis] = {step: (at, value)}
            elif step not in series or at >= series[step][0]:
                series[step] = (at, value)
    if not given:
        return StoredPoints(0, {})
    ids, headline = _store_series(sql, run_id, attempt_id, cursor, given)
    rows = [
        (ids[key], step, at, value)
        for key, points in given.items()
        for step, (at, value) in points.items()
    ]
    series_ids, steps, ats, numbers_given = zip(*rows, strict=True)
    sql.execute(
        _POINTS,
        {
            "cursor": cursor,
            "series": numbers(series_ids),
            "steps": numbers(steps),
            "ats": numbers(ats),
            "values": numbers(numbers_given),
        },
    )
    return StoredPoints(count, headline)


def _store_series(
    sql: Cursor[Any],
    run_id: str,
    attempt_id: str,
    cursor: int,
    given: dict[Key, dict[int, tuple[float, float]]],
) -> tuple[dict[Key, int], dict[str, float]]:
    # Sorted: two transactions that create the same series wait for each other in one order.
    keys = sorted(given)
    newest = [max(given[key].items()) for key in keys]
    sql.execute(
        _SERIES,
        {
            "run": run_id,
            "attempt": attempt_id,
            "cursor": cursor,
            "names": [name for name, _ in keys],
            "axes": [axis for _, axis in keys],
            "steps": numbers(step for step, _ in newest),
            "ats": numbers(at for _, (at, _) in newest),
            "values": numbers(value for _, (_, value) in newest),
        },
    )
    stored = sql.fetchall()
    ids = {(name, axis): series_id for series_id, name, axis, *_ in stored}
    headline = {
        name: value
        for _, name, _, _, _, value in stored
        if name in METRICS and math.isfinite(value)
    }
    return ids, headline
