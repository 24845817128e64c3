"""REST of exports: trajectories as JSON lines, as Parquet, one of them as an HTML file."""

from collections.abc import AsyncIterator, Iterator
from typing import Literal

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router

from webapp.accounts import access
from webapp.experiments.models import Run
from webapp.reviews import exports, html_export, queries, reading
from webapp.reviews.models import Trajectory

router = Router(tags=["trajectories"])
PIECE = 256 * 2**10  # bytes that are sent at a time, at least
TYPES = {
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "html": "text/html; charset=utf-8",
}


@router.get("/runs/{run_id}/trajectories/export", response={200: None})
def export_trajectories(
    request: HttpRequest,
    run_id: str,
    wanted: Query[queries.Filter],
    format: Literal["jsonl", "parquet"] = "jsonl",
) -> StreamingHttpResponse:
    """JSON lines, one whole trajectory each, one that cannot be read as {"id", "problem"}; or
    Parquet, one row for each step."""
    run = access.get(Run.objects.all(), run_id, access.actor_of(request))
    rows = _all(run, wanted)
    pieces = exports.parquet(rows) if format == "parquet" else exports.json_lines(rows)
    return _download(pieces, f"{run.pk}-trajectories", format)


@router.get("/trajectories/{pk}/export", response={200: None})
def export_trajectory(
    request: HttpRequest,
    pk: str,
    format: Literal["jsonl", "parquet", "html"] = "jsonl",
    comments: bool = False,
) -> StreamingHttpResponse:
    """One trajectory: a JSON line, Parquet with a row for each step, or an HTML file that opens
    without a server, with the comments on it if they are asked for."""
    rows = Trajectory.objects.select_related("project", "run__experiment", "attempt")
    row = access.get(rows, pk, access.actor_of(request))
    with reading.stored(row):  # refuses what is gone before an answer is begun
        pass
    if format == "html":
        pieces = html_export.html(row, comments)
    else:
        pieces = exports.parquet([row]) if format == "parquet" else exports.json_lines([row])
    return _download(pieces, row.pk, format)


def _all(run: Run, wanted: queries.Filter) -> Iterator[Trajectory]:
    cursor: str | None = None
    while True:
        page = queries.export_page(run, wanted, cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _download(pieces: Iterator[bytes], name: str, format: str) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(_sent(pieces), content_type=TYPES[format])
    answer["Content-Disposition"] = f'attachment; filename="{name}.{format}"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


async def _sent(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Made in a thread, a piece at a time, only as fast as the other side takes them."""
    while piece := await sync_to_async(_joined)(pieces):
        yield piece


def _joined(pieces: Iterator[bytes]) -> bytes:
    parts, size = list[bytes](), 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size >= PIECE:
            break
    return b"".join(parts)
