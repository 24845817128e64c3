"""Roll-ups: a series as at most so many buckets, on a power-of-two grid from step 0.

Buckets of 2**5, 2**10, 2**15 ... steps are stored; other widths are put together from the next
finer level that is stored, or from the points themselves. Appending never moves an old bucket.
Stored buckets are recomputed from what they hold (so that what arrives twice counts once) after a
point in them was written: by ingest every few seconds, and before they are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import F

from webapp.experiments.models import Run
from webapp.monitoring.bulk import bulk_cursor, numbers
from webapp.monitoring.models import Series
from webapp.monitoring.queries import series_of

STORED_LEVELS = (5, 10, 15, 20, 25)
MAX_BUCKETS = 1500

# first, last, min, max, mean, count (finite), nonfinite, at (of the last point). NaN is above
# Infinity in PostgreSQL, so that this one comparison tells the finite values. Of a mean they count
# up to 1e290, and avg() is not used: PostgreSQL refuses a sum, or a sum of squares, beyond a float.
_OF_POINTS = """
        (array_agg(value ORDER BY step) FILTER (WHERE abs(value) < 'Infinity'))[1],
        (array_agg(value ORDER BY step DESC) FILTER (WHERE abs(value) < 'Infinity'))[1],
        min(value) FILTER (WHERE abs(value) < 'Infinity'),
        max(value) FILTER (WHERE abs(value) < 'Infinity'),
        sum(greatest(-1e290, least(1e290, value))) FILTER (WHERE abs(value) < 'Infinity')
            / nullif(count(*) FILTER (WHERE abs(value) < 'Infinity'), 0),
        count(*) FILTER (WHERE abs(value) < 'Infinity'),
        count(*) FILTER (WHERE NOT abs(value) < 'Infinity'),
        max(at)
"""
_OF_ROLLUPS = """
        (array_agg(first ORDER BY bucket) FILTER (WHERE count > 0))[1],
        (array_agg(last ORDER BY bucket DESC) FILTER (WHERE count > 0))[1],
        min(min), max(max), sum(mean * count) / nullif(sum(count), 0),
        sum(count)::bigint, sum(nonfinite)::bigint, max(at)
"""
_GIVEN = """
    unnest(%(series)s::bigint[], %(levels)s::int[], %(stored)s::int[],
           %(starts)s::bigint[], %(stops)s::bigint[])
    AS given (series, level, stored, start, stop)
"""
_READ_POINTS = f"""
    SELECT given.series, made.* FROM {_GIVEN}
    CROSS JOIN LATERAL (
        SELECT step >> given.level AS wide, {_OF_POINTS}
        FROM monitoring_point
        WHERE series_id = given.series AND step >= given.start AND step < given.stop
        GROUP BY wide
    ) AS made
    ORDER BY given.series, made.wide
"""
_READ_ROLLUPS = f"""
    SELECT given.series, made.* FROM {_GIVEN}
    CROSS JOIN LATERAL (
        SELECT bucket >> (given.level - given.stored) AS wide, {_OF_ROLLUPS}
        FROM monitoring_rollup AS finer
        WHERE series_id = given.series AND finer.level = given.stored
            AND bucket >= given.start >> given.stored AND bucket < given.stop >> given.stored
        GROUP BY wide
    ) AS made
    ORDER BY given.series, made.wide
"""
_FIRST = """
    SELECT given.id, (SELECT min(step) FROM monitoring_point WHERE series_id = given.id)
    FROM unnest(%s::bigint[]) AS given (id)
"""
_STORE = """
    INSERT INTO monitoring_rollup
        (series_id, level, bucket, first, last, min, max, mean, count, nonfinite, at)
    SELECT touched.series, %(level)s, touched.bucket, made.*
    FROM unnest(%(series)s::bigint[], %(buckets)s::bigint[]) AS touched (series, bucket)
    CROSS JOIN LATERAL ({made}) AS made
    ON CONFLICT (series_id, level, bucket) DO UPDATE SET
        first = excluded.first, last = excluded.last, min = excluded.min, max = excluded.max,
        mean = excluded.mean, count = excluded.count, nonfinite = excluded.nonfinite,
        at = excluded.at
"""
_STORE_FROM_POINTS = _STORE.format(
    made=f"""
    SELECT {_OF_POINTS} FROM monitoring_point
    WHERE series_id = touched.series
        AND step >= touched.bucket << %(level)s AND step < (touched.bucket + 1) << %(level)s
    """
)
_STORE_FROM_FINER = _STORE.format(
    made=f"""
    SELECT {_OF_ROLLUPS} FROM monitoring_rollup AS finer
    WHERE series_id = touched.series AND finer.level = %(finer)s
        AND bucket >= touched.bucket << (%(level)s - %(finer)s)
        AND bucket < (touched.bucket + 1) << (%(level)s - %(finer)s)
    """
)


@dataclass(frozen=True)
class Rolled:
    """One series in buckets of 2**level steps: lists of COLUMNS, empty buckets are absent. All
    numbers are finite; those of the values are None where no value is."""

    id: int
    name: str
    axis: str
    attempt: int
    level: int
    buckets: list[list[Any]]


COLUMNS = ["step", "first", "last", "min", "max", "mean", "count", "nonfinite", "at"]
BARE_COLUMNS = ["step", "last", "count", "nonfinite", "at"]  # of a line without a band


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
    found = [one for one in series_of(run, names=names) if axis is None or one.axis == axis]
    return rolled_series(found, start=start, stop=stop, buckets=buckets)


def rolled_series(
    found: Sequence[Series],
    *,
    start: int | None = None,
    stop: int | None = None,
    buckets: int = MAX_BUCKETS,
    level: int = 0,
    bare: bool = False,
) -> list[Rolled]:
    """These series, each in at most `buckets` buckets of at least 2**level steps, in a number of
    queries that does not depend on theirs. They come with their attempts. `bare`: BARE_COLUMNS."""
    buckets = max(1, min(buckets, MAX_BUCKETS))
    ranges = _ranges(found)
    windows: dict[int, Window] = {}
    for series in found:
        first, last = ranges[series.pk]
        low = first if start is None else max(first, start)
        high = last if stop is None else min(last, stop)
        if low <= high:
            wide = max(level, level_for(low, high, buckets))
            windows[series.pk] = Window(
                series.pk, wide, low >> wide << wide, ((high >> wide) + 1) << wide
            )
    stale = [
        one.pk
        for one in found
        if one.cursor > one.rolled and one.pk in windows and windows[one.pk].stored is not None
    ]
    if stale:
        roll_up(stale)
    rows = _buckets(list(windows.values()), bare)
    return [
        Rolled(
            one.pk,
            one.name,
            one.axis,
            one.attempt.number,
            windows[one.pk].level if one.pk in windows else level,
            rows.get(one.pk, []),
        )
        for one in found
    ]


@dataclass(frozen=True)
class Window:
    """Whole buckets of a series: those at the ends reach beyond the steps that were asked for."""

    series: int
    level: int
    start: int
    stop: int

    @property
    def stored(self) -> int | None:
        """The finest level that is stored and no wider; None: only the points themselves."""
        return max((known for known in STORED_LEVELS if known <= self.level), default=None)


@transaction.atomic
def roll_up(series_ids: list[int], wait: bool = True) -> None:
    """Bring the stored buckets of these series up to date.

    Without `wait`, series that ingest is writing to are left for the next time: it locks many in
    an order of its own.
    """
    stale = list(
        Series.objects.select_for_update(no_key=True, skip_locked=not wait)
        .filter(pk__in=series_ids, cursor__gt=F("rolled"))
        .order_by("pk")
    )
    if not stale:
        return
    with bulk_cursor() as sql:
        sql.execute(
            """
            SELECT DISTINCT series.id, point.step >> %s
            FROM unnest(%s::bigint[], %s::bigint[]) AS series (id, rolled)
            JOIN monitoring_point AS point
                ON point.series_id = series.id AND point.cursor > series.rolled
            """,
            [
                STORED_LEVELS[0],
                numbers(series.pk for series in stale),
                numbers(series.rolled for series in stale),
            ],
        )
        touched: set[tuple[int, int]] = set(sql.fetchall())
        finer: int | None = None
        for level in STORED_LEVELS:
            if finer is not None:
                touched = {(series, bucket >> (level - finer)) for series, bucket in touched}
            sql.execute(
                _STORE_FROM_POINTS if finer is None else _STORE_FROM_FINER,
                {
                    "level": level,
                    "finer": finer,
                    "series": numbers(series for series, _ in touched),
                    "buckets": numbers(bucket for _, bucket in touched),
                },
            )
            finer = level
    # The rows are locked, so that their cursors are those that were read.
    Series.objects.filter(pk__in=[series.pk for series in stale]).update(rolled=F("cursor"))


def roll_up_some(most: int = 50) -> bool:
    """Bring up to `most` series of each run up to date; whether there may be more."""
    runs = Run.objects.filter(has_stale_series=True).order_by("pk").values_list("pk", flat=True)
    more = [_roll_up_run(run_id, most) for run_id in runs]
    return any(more)


def _roll_up_run(run_id: str, most: int) -> bool:
    stale = Series.objects.filter(run=run_id, cursor__gt=F("rolled"))
    found = list(stale.order_by("pk").values_list("pk", flat=True)[:most])
    roll_up(found, wait=False)
    if len(found) == most:
        return True
    with transaction.atomic():
        Run.objects.select_for_update(no_key=True).get(pk=run_id)  # ingest is not writing to it now
        if not stale.exists():
            Run.objects.filter(pk=run_id).update(has_stale_series=False)
    return False


def level_for(low: int, high: int, buckets: int) -> int:
    """The finest level at which the steps from low to high fall into at most `buckets` buckets."""
    level = 0
    while (high >> level) - (low >> level) + 1 > buckets:
        level += 1
    return level


def _ranges(found: Sequence[Series]) -> dict[int, tuple[int, int]]:
    """First and last step of each series; (0, -1) of one without a point."""
    with connection.cursor() as sql:
        sql.execute(_FIRST, [[series.pk for series in found]])
        first = dict(sql.fetchall())
    return {
        series.pk: (0, -1)
        if first[series.pk] is None or series.last_step is None
        else (first[series.pk], series.last_step)
        for series in found
    }


def _buckets(windows: list[Window], bare: bool) -> dict[int, list[list[Any]]]:
    """The buckets of each series, in order."""
    found: dict[int, list[list[Any]]] = {}
    for statement, of in (
        (_READ_POINTS, [one for one in windows if one.stored is None]),
        (_READ_ROLLUPS, [one for one in windows if one.stored is not None]),
    ):
        if not of:
            continue
        values: dict[str, Any] = {
            "series": [one.series for one in of],
            "levels": [one.level for one in of],
            "stored": [one.stored for one in of],
            "starts": [one.start for one in of],
            "stops": [one.stop for one in of],
        }
        levels = {one.series: one.level for one in of}
        with connection.cursor() as sql:
            sql.execute(statement, values)
            for series, bucket, first, last, *rest in sql.fetchall():
                values_of = (last, *rest[3:]) if bare else (first, last, *rest)
                found.setdefault(series, []).append([bucket << levels[series], *values_of])
    return found
