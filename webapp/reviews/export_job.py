"""The job that writes an export to storage, beside the other files of its run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from webapp import storage
from webapp.experiments.jobs import Working
from webapp.experiments.models import Run
from webapp.experiments.services.job_files import path_of
from webapp.problems import RefusedError
from webapp.reviews import exports, queries
from webapp.reviews.services.exporting import Asked

T = TypeVar("T")
KEPT_FREE = 2 * 2**30  # bytes
CHECK_EVERY = 64 * 2**20  # bytes written
GONE = "The run whose trajectories were to be exported was deleted."


def check_room() -> None:
    """PostgreSQL may be on the same disk. Raises RefusedError."""
    free = storage.free_bytes()
    if free is not None and free < KEPT_FREE:
        raise RefusedError(
            f"The storage has {free / 2**30:.1f} GiB left, and exports leave {KEPT_FREE >> 30} GiB "
            "free: prune on the Storage page, or narrow the filter."
        )


@dataclass
class Passed:
    """How many trajectories were taken on by now."""

    count: int = 0

    def over(self, rows: Iterator[T]) -> Iterator[T]:
        for row in rows:
            self.count += 1
            yield row


def work(working: Working) -> dict[str, Any]:
    """The function of jobs of kind `export`: the file, and how many trajectories it holds."""
    asked = Asked.model_validate(working.spec)
    run = Run.objects.filter(project=working.job.project_id, pk=asked.run).first()
    if run is None:
        raise RefusedError(GONE)
    wanted = queries.Filter.model_validate(asked.filter)
    total = queries.matching(run, wanted).count()
    working.log(f"{total} trajectories to export")
    path, size = path_of(working.job), 0
    passed, told, checked = Passed(), exports.Told(), -CHECK_EVERY
    rows = passed.over(queries.all_of(run, wanted))
    working.progress(0, total, "Writing")
    with storage.new_run_file(run.pk, path) as file:
        for piece in exports.pieces_of(rows, asked.format, told):
            file.write(piece)
            size += len(piece)
            if size - checked >= CHECK_EVERY:
                check_room()
                checked = size
            done = min(max(0, passed.count - 1), total)
            working.progress(done, total, f"{size / 1e6:,.0f} MB written")
    if not Run.objects.filter(pk=run.pk).exists():
        storage.remove_run(run.pk)
        raise RefusedError(GONE)
    working.progress(total, total)
    if told.unreadable:
        working.log(f"{told.unreadable} could not be read: the file says why")
    return {
        "file": {"path": path, "name": f"{run.pk}-trajectories.{asked.format}", "bytes": size},
        "format": asked.format,
        "filter": asked.filter,
        "trajectories": passed.count - told.unreadable,
        "unreadable": told.unreadable,
    }
