"""Reads of what runs reported. Every function is given one run that the caller may see."""

from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from webapp.experiments.models import Run
from webapp.monitoring.models import DeviceSample, Gap, Point, RunEvent, Series
from webapp.monitoring.numbers import encode_number, encode_optional

MAX_POINTS = 50_000
LEVELS = ["debug", "info", "warning", "error"]
LIVE_POINTS = 500  # more than these are fetched instead of pushed


def series_of(run: Run, search: str = "", names: list[str] | None = None) -> QuerySet[Series]:
    """The run's series with their attempt, by name; `search` is a part of the name."""
    found = Series.objects.filter(run=run).select_related("attempt")
    if search:
        found = found.filter(name__icontains=search)
    if names is not None:
        found = found.filter(name__in=names)
    return found.order_by("name", "attempt__number", "axis")


def series_row(series: Series) -> dict[str, Any]:
    """A series as API and socket give it."""
    return {
        "id": series.pk,
        "name": series.name,
        "axis": series.axis,
        "attempt": series.attempt.number,
        "last_step": series.last_step,
        "last_at": series.last_at,
        "last": encode_optional(series.last_value),
    }


def series_list(run: Run, search: str = "", limit: int = 5000) -> list[dict[str, Any]]:
    return [series_row(series) for series in series_of(run, search)[:limit]]


@dataclass(frozen=True)
class PointsAfter:
    """Points stored after a cursor and up to `cursor`; ask again from there while `more`."""

    cursor: int
    more: bool
    series: list[dict[str, Any]]  # {id, name, axis, attempt, points: [[step, at, value], ...]}


def points_after(
    run: Run, after: int, names: list[str] | None = None, limit: int = MAX_POINTS
) -> PointsAfter:
    """Every point stored after a cursor, whole transactions only, in about `limit` points.

    Nothing newer than the given run's cursor is returned, so that asking again from the returned
    cursor neither repeats nor misses a point.
    """
    upto = run.cursor
    touched = list(series_of(run, names=names).filter(cursor__gt=after))
    if not touched or after >= upto:
        return PointsAfter(max(upto, after), False, [])
    ids = [series.pk for series in touched]
    with connection.cursor() as sql:
        # One probe of the index (series, cursor) for each series; only then sorted and cut.
        sql.execute(
            """
            SELECT p.cursor, p.series_id, p.step, p.at, p.value
            FROM unnest(%s::bigint[]) AS s(id)
            CROSS JOIN LATERAL (
                SELECT * FROM monitoring_point
                WHERE series_id = s.id AND cursor > %s AND cursor <= %s
                ORDER BY cursor LIMIT %s
            ) AS p
            ORDER BY p.cursor, p.series_id, p.step
            LIMIT %s
            """,
            [ids, after, upto, limit + 1, limit + 1],
        )
        rows = sql.fetchall()
    more = len(rows) > limit
    if more:
        upto, rows = _whole_transactions(rows, ids)
    points: dict[int, list[list[Any]]] = {}
    for _, series_id, step, at, value in rows:
        points.setdefault(series_id, []).append([step, at, encode_number(value)])
    found = [
        {
            "id": series.pk,
            "name": series.name,
            "axis": series.axis,
            "attempt": series.attempt.number,
            "points": points[series.pk],
        }
        for series in touched
        if series.pk in points
    ]
    return PointsAfter(upto, more, found)


def _whole_transactions(rows: list[Any], ids: list[int]) -> tuple[int, list[Any]]:
    """Cut at the end of a transaction; one that is larger than the limit is returned whole."""
    last = rows[-1][0]
    whole = [row for row in rows if row[0] < last]
    if whole:
        return whole[-1][0], whole
    one = Point.objects.filter(series__in=ids, cursor=last).order_by("series_id", "step")
    return last, list(one.values_list("cursor", "series_id", "step", "at", "value"))


def events_after(run: Run, kinds: list[str], after: int, upto: int) -> QuerySet[RunEvent]:
    """Events of some kinds, stored after a cursor and up to another, in the order of storing."""
    found = RunEvent.objects.filter(run=run, kind__in=kinds, cursor__gt=after, cursor__lte=upto)
    return found.select_related("attempt").order_by("cursor", "pk")


def event_row(event: RunEvent) -> dict[str, Any]:
    return {
        "id": event.pk,
        "attempt": event.attempt.number,
        "source": event.source,
        "at": event.at,
        **event.data,
    }


def pool_history(run: Run, since: float | None = None, limit: int = 500) -> list[dict[str, Any]]:
    """Pool snapshots by time, thinned evenly to `limit`, the newest always among them."""
    found = RunEvent.objects.filter(run=run, kind="pool")
    if since is not None:
        found = found.filter(at__gt=since)
    return [event_row(event) for event in _thinned(found, limit)]


def _thinned(found: QuerySet[RunEvent], limit: int) -> QuerySet[RunEvent]:
    """Every n-th event by time, counted from the newest, so that it is always among them."""
    ids = list(found.order_by("-at", "-pk").values_list("pk", flat=True))
    kept = ids[:: -(-len(ids) // limit) or 1]
    rows = RunEvent.objects.filter(pk__in=kept).select_related("attempt")
    return rows.order_by("at", "pk")


def decisions(run: Run, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Gate decisions, newest first; `before` is the id of the last one of the page before."""
    return _newest(run, "decision", before, limit)


def trees(run: Run, before: int | None = None, limit: int = 1) -> list[dict[str, Any]]:
    """Prefix forests of training batches, newest first; `before` is the id of the last one."""
    return _newest(run, "tree", before, limit)


def logs(
    run: Run,
    *,
    before: int | None = None,
    after: int | None = None,
    search: str = "",
    level: str = "",
    limit: int = 200,
) -> list[dict[str, Any]]:
    """Log lines, oldest first: the newest `limit`, those before an id, or those after one."""
    found = RunEvent.objects.filter(run=run, kind="log").select_related("attempt")
    if search:
        found = found.filter(data__text__icontains=search)
    if level:
        found = found.filter(data__level__in=LEVELS[LEVELS.index(level) :])
    if after is not None:
        return [event_row(event) for event in found.filter(pk__gt=after).order_by("pk")[:limit]]
    if before is not None:
        found = found.filter(pk__lt=before)
    return [event_row(event) for event in reversed(found.order_by("-pk")[:limit])]


def _newest(run: Run, kind: str, before: int | None, limit: int) -> list[dict[str, Any]]:
    found = RunEvent.objects.filter(run=run, kind=kind).select_related("attempt")
    if before is not None:
        found = found.filter(pk__lt=before)
    return [event_row(event) for event in found.order_by("-pk")[:limit]]


@dataclass(frozen=True)
class Lane:
    """The phases of one actor: what a device worked on, and its share of the window."""

    source: str
    attempt: int
    spans: list[tuple[str, float, float]]  # (phase, start, stop), seconds since 1970
    shares: dict[str, float]  # of the window, by phase
    busy: float  # share of the window in which it was not idle, queued or waiting for a tool


NOT_BUSY = ("idle", "queue", "tool")
MAX_SPANS = 20_000


def lanes(run: Run, since: float | None = None, until: float | None = None) -> list[Lane]:
    """Phase spans by actor in a window, by default the last five minutes that were reported."""
    spans = RunEvent.objects.filter(run=run, kind="spans")
    if until is None:
        newest = spans.order_by("-at").values_list("at", flat=True).first()
        if newest is None:
            return []
        until = newest
    since = until - 300 if since is None else since
    # An event carries spans that ended before it; none is longer than a few minutes.
    events = spans.filter(at__gte=since, at__lte=until + 300).select_related("attempt")
    by_actor: dict[tuple[str, int], list[tuple[str, float, float]]] = {}
    for event in events.order_by("at")[:MAX_SPANS]:
        lane = by_actor.setdefault((event.source, event.attempt.number), [])
        for phase, start, stop in event.data["spans"]:
            if stop > since and start < until:
                lane.append((phase, max(start, since), min(stop, until)))
    width = max(until - since, 1e-9)
    found = []
    for (source, attempt), pieces in sorted(by_actor.items()):
        shares: dict[str, float] = {}
        for phase, start, stop in pieces:
            shares[phase] = shares.get(phase, 0.0) + (stop - start) / width
        busy = sum(share for phase, share in shares.items() if phase not in NOT_BUSY)
        found.append(Lane(source, attempt, pieces, shares, min(busy, 1.0)))
    return found


def clocks(run: Run, limit: int = 2000) -> list[list[Any]]:
    """Where the axes stood: [attempt, at, trainer_step, rollout_step, environment_step, tokens]."""
    rows = _thinned(RunEvent.objects.filter(run=run, kind="clock"), limit)
    names = ("trainer_step", "rollout_step", "environment_step", "tokens")
    return [[row.attempt.number, row.at, *(row.data[name] for name in names)] for row in rows]


def gaps(run: Run) -> list[Gap]:
    return list(Gap.objects.filter(run=run).select_related("attempt").order_by("at"))


def device_history(since: float, node: str = "", limit: int = 2000) -> list[DeviceSample]:
    """Samples of the cluster's devices after a moment, oldest first."""
    found = DeviceSample.objects.filter(at__gt=since)
    if node:
        found = found.filter(node=node)
    return list(found.order_by("-at")[:limit])[::-1]


def newest_devices() -> list[DeviceSample]:
    """The newest sample of each node."""
    return list(DeviceSample.objects.order_by("node", "-at").distinct("node"))
