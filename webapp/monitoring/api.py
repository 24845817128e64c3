"""REST of what runs reported; live pages read the same and follow it by socket."""

import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema

from webapp.accounts import access
from webapp.experiments.models import Run
from webapp.monitoring import queries, rollups
from webapp.problems import RefusedError, invalid_field

router = Router(tags=["monitoring"])
Number = float | Literal["NaN", "Infinity", "-Infinity"]
Names = Annotated[str | None, Query(description="metric names, separated by commas")]
Rows = Annotated[int, Query(ge=1, le=1000)]
EventId = Annotated[int | None, Query(ge=0, lt=2**63)]
StoredCursor = Annotated[int | None, Query(ge=0, lt=2**63)]


class SeriesOut(Schema):
    id: int
    name: str
    axis: str
    attempt: int
    last_step: int | None
    last_at: float | None
    last: Number | None


class SeriesList(Schema):
    cursor: int
    items: list[SeriesOut]


@router.get("/runs/{run_id}/series", response=SeriesList)
def list_series(request: HttpRequest, run_id: str, search: str = "", limit: Rows = 1000) -> Any:
    """The run's series with their newest values; `search` is a part of the name."""
    run = _run(request, run_id)
    return {"cursor": run.cursor, "items": queries.series_list(run, search, limit)}


class PointsOut(Schema):
    """With `after`, series have `points`, [step, at, value]; else `buckets` of 2**level steps."""

    cursor: int
    more: bool = False
    columns: list[str] = rollups.COLUMNS
    series: list[dict[str, Any]]


@router.get("/runs/{run_id}/points", response=PointsOut)
def read_points(
    request: HttpRequest,
    run_id: str,
    names: Names = None,
    series: Annotated[str | None, Query(description="the same as names")] = None,
    after: StoredCursor = None,
    axis: str | None = None,
    start: Annotated[int | None, Query(alias="from", ge=0, lt=2**53)] = None,
    stop: Annotated[int | None, Query(alias="to", ge=0, lt=2**53)] = None,
    buckets: Annotated[int, Query(ge=1, le=rollups.MAX_BUCKETS)] = rollups.MAX_BUCKETS,
) -> Any:
    """Raw points stored after a cursor, or the named series rolled up between two steps."""
    run = _run(request, run_id)
    wanted = _split(names) or _split(series)
    if after is not None:
        found = queries.points_after(run, after, wanted or None)
        return {"cursor": found.cursor, "more": found.more, "series": found.series}
    if not wanted:
        raise invalid_field("names", "Name the metrics, or ask for all points after a cursor.")
    rolled = rollups.rolled(run, wanted, axis=axis, start=start, stop=stop, buckets=buckets)
    return {"cursor": run.cursor, "series": [asdict(item) for item in rolled]}


class Events(Schema):
    cursor: int
    items: list[dict[str, Any]]


@router.get("/runs/{run_id}/pool", response=Events)
def read_pool(
    request: HttpRequest, run_id: str, since: float | None = None, limit: Rows = 500
) -> Any:
    """Snapshots of the data pool by time, thinned evenly; the newest is always among them."""
    run = _run(request, run_id)
    return {"cursor": run.cursor, "items": queries.pool_history(run, since, limit)}


@router.get("/runs/{run_id}/decisions", response=Events)
def read_decisions(
    request: HttpRequest, run_id: str, before: EventId = None, limit: Rows = 100
) -> Any:
    """Why training waited, the newest first; `before` is an item's id."""
    run = _run(request, run_id)
    return {"cursor": run.cursor, "items": queries.decisions(run, before, limit)}


@router.get("/runs/{run_id}/trees", response=Events)
def read_trees(
    request: HttpRequest,
    run_id: str,
    before: EventId = None,
    limit: Annotated[int, Query(ge=1, le=20)] = 1,
) -> Any:
    """The prefix forests of training batches, the newest first; `before` is an item's id.

    By column and in depth-first order: the parent, tokens, samples and label of each node.
    """
    run = _run(request, run_id)
    return {"cursor": run.cursor, "items": queries.trees(run, before, limit)}


@router.get("/runs/{run_id}/logs", response=Events)
def read_logs(
    request: HttpRequest,
    run_id: str,
    before: EventId = None,
    after: EventId = None,
    search: str = "",
    level: Literal["", "debug", "info", "warning", "error"] = "",
    limit: Rows = 200,
) -> Any:
    """Log lines, oldest first: the newest ones, or those before or after an item's id."""
    run = _run(request, run_id)
    lines = queries.logs(run, before=before, after=after, search=search, level=level, limit=limit)
    return {"cursor": run.cursor, "items": lines}


class LaneOut(Schema):
    source: str
    attempt: int
    spans: list[tuple[str, float, float]]
    shares: dict[str, float]
    busy: float


class LanesOut(Schema):
    cursor: int
    lanes: list[LaneOut]


@router.get("/runs/{run_id}/spans", response=LanesOut)
def read_spans(
    request: HttpRequest,
    run_id: str,
    since: Annotated[float | None, Query(alias="from")] = None,
    until: Annotated[float | None, Query(alias="to")] = None,
) -> Any:
    """Phases of each actor in a window of time, by default the last five minutes reported."""
    run = _run(request, run_id)
    if since is not None and until is not None and since >= until:
        raise invalid_field("from", "The window must begin before it ends.")
    return {"cursor": run.cursor, "lanes": queries.lanes(run, since, until)}


class Clocks(Schema):
    """Rows are [attempt, at, trainer_step, rollout_step, environment_step, tokens]."""

    cursor: int
    items: list[list[float]]


@router.get("/runs/{run_id}/clock", response=Clocks)
def read_clock(request: HttpRequest, run_id: str) -> Any:
    """Where each axis stood over time: what joins the axes of the charts."""
    run = _run(request, run_id)
    return {"cursor": run.cursor, "items": queries.clocks(run)}


class GapOut(Schema):
    attempt: int
    what: str
    items: int
    since: float
    at: float


@router.get("/runs/{run_id}/gaps", response=list[GapOut])
def read_gaps(request: HttpRequest, run_id: str) -> Any:
    """Telemetry that was dropped or thinned."""
    return [
        {**GapOut.model_validate(vars(gap) | {"attempt": gap.attempt.number}).dict()}
        for gap in queries.gaps(_run(request, run_id))
    ]


class DevicesOut(Schema):
    node: str
    at: float
    devices: list[dict[str, Any]]


@router.get("/cluster/devices", response=list[DevicesOut])
def read_devices(
    request: HttpRequest,
    since: Annotated[float | None, Query(description="seconds since 1970")] = None,
    node: str = "",
) -> Any:
    """The newest sample of each node, or all of the last hour since a moment."""
    if not access.actor_of(request).roles():
        raise RefusedError("There is no such thing here.", status=404)
    if since is None:
        return queries.newest_devices()
    return queries.device_history(max(since, time.time() - 3600), node)


def _run(request: HttpRequest, run_id: str) -> Run:
    return access.get(Run.objects.all(), run_id, access.actor_of(request))


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]
