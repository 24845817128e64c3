"""REST of exports: trajectories as JSON lines, as Parquet, one of them as an HTML file, and their
tasks as a dataset."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router, Schema, Status

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments.api.jobs import JobDetailOut
from webapp.experiments.models import Run
from webapp.reviews import exports, html_export, queries, reading, services
from webapp.reviews.models import Trajectory
from webapp.reviews.services import exporting
from webapp.reviews.trained import with_newest

router = Router(tags=["trajectories"])
PIECE = 256 * 2**10  # bytes that are sent at a time, at least
TYPES = {
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "html": "text/html; charset=utf-8",
}


class ExtentOut(Schema):
    """How much an export is; `bytes` in storage. `needs_job`: too much to be sent at once."""

    trajectories: int
    bytes: int
    needs_job: bool


class ExportIn(Schema):
    """`filter`: what narrows the run's trajectories, as the parameters of their list."""

    format: exporting.Format = "jsonl"
    filter: queries.Filter = queries.Filter()


class CollectIn(Schema):
    """`name`: of a dataset of tasks, which is made if it is new; `filter` as of an export."""

    name: str
    filter: queries.Filter = queries.Filter()


@router.get("/runs/{run_id}/trajectories/export", response={200: None})
def export_trajectories(
    request: HttpRequest,
    run_id: str,
    wanted: Query[queries.Filter],
    format: exporting.Format = "jsonl",
) -> StreamingHttpResponse:
    """JSON lines, one whole trajectory each, one that cannot be read as {"id", "problem"}; or
    Parquet, one row for each step. Of at most 1,000 trajectories, 16 MiB in storage; 409 above."""
    run = access.get(Run.objects.all(), run_id, access.actor_of(request))
    exporting.check_extent(run, wanted)
    pieces = exports.pieces_of(queries.all_of(run, wanted), format)
    return _download(pieces, f"{run.pk}-trajectories", format)


@router.get("/runs/{run_id}/exports/extent", response=ExtentOut)
def get_extent(request: HttpRequest, run_id: str, wanted: Query[queries.Filter]) -> Any:
    """How much an export of these trajectories is, and whether it needs a job."""
    run = access.get(Run.objects.all(), run_id, access.actor_of(request))
    return exporting.extent_of(run, wanted)


@router.post("/runs/{run_id}/exports", response={202: JobDetailOut})
def start_export(request: HttpRequest, run_id: str, data: ExportIn) -> Any:
    """Make an export of any size: a job, whose file `jobs/{job_id}/file` gives."""
    actor = access.actor_of(request)
    run = access.get(Run.objects.select_related("project"), run_id, actor, Role.EDITOR)
    return Status(202, services.start_export(run, actor.user, data.filter, data.format))


@router.post("/runs/{run_id}/tasks", response={202: JobDetailOut})
def collect_tasks(request: HttpRequest, run_id: str, data: CollectIn) -> Any:
    """Make a version of a dataset of tasks of what these trajectories were asked, each task once:
    a job, whose result names the version."""
    actor = access.actor_of(request)
    run = access.get(Run.objects.select_related("project"), run_id, actor, Role.EDITOR)
    return Status(202, services.start_collecting(run, actor.user, data.filter, data.name))


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
        pieces = exports.pieces_of(with_newest([row]), format)
    return _download(pieces, row.pk, format)


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
