"""`caravan jobs`: list, show, cancel and wait for long work that is no run."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from caravan.commands.shared import (
    INTERRUPTED,
    RUN_FAILED,
    AsJson,
    Limit,
    Project,
    command,
    connect,
    emit,
    free,
    listing,
    more,
    save,
    show,
    since,
    span,
)
from caravan.text import one_line

if TYPE_CHECKING:
    from caravan.client import Client

POLL_S = 1.0
ENDED = ("succeeded", "stopped", "failed", "lost")
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Its id.")]

app = listing("jobs", "Long work that is no run: backtests, pruning and the like.")


@command(app, "list")
def list_jobs(
    kind: Annotated[str, typer.Option(help="Of this kind only.")] = "",
    state: Annotated[str, typer.Option(help="In this state; active: not ended.")] = "",
    limit: Limit = 20,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""
    with connect() as client:
        found = client.jobs(kind=kind, state=state, project=project, limit=limit + (not as_json))
    if as_json:
        emit(found)
        return
    headings = ("id", "title", "kind", "state", "progress", "started")
    show(headings, map(_row, found[:limit]), "No jobs.", spare=("kind", "started"))
    if len(found) > limit:
        more(limit)


@command(app, "show")
def show_job(job: JobArgument, as_json: AsJson = False) -> None:
    """Show a job: progress, log, and how it ended. Its result is in --json."""
    with connect() as client:
        found = client.job(job)
    if as_json:
        emit(found)
        return
    print(_line(found))
    for line in found["log"].splitlines():
        print(f"  {one_line(line, 500)}")


@command(app)
def cancel(job: JobArgument, as_json: AsJson = False) -> None:
    """Ask a job to end."""
    with connect() as client:
        found = client.cancel_job(job)
    emit(found) if as_json else print(_line(found))


@command(app)
def wait(job: JobArgument, as_json: AsJson = False) -> None:
    """Follow a job to its end; exit code 0 if it succeeds, 1 if it ends otherwise."""
    with connect() as client:
        raise typer.Exit(follow(client, job, as_json))


@command(app)
def download(
    job: JobArgument,
    to: Annotated[Path, typer.Option(help="A new file.")],
    as_json: AsJson = False,
) -> None:
    """Save the file that a job made: an export."""
    free(to)
    with connect() as client, client.job_file(job) as answer:
        save(answer.iter_bytes(), to)
    emit({"file": str(to), "bytes": to.stat().st_size}) if as_json else print(f"{to} is written.")


def follow(client: "Client", job_id: str, as_json: bool = False) -> int:
    """Print each change of a job until it has ended; the exit code. Ctrl-C leaves it running."""
    told = ""
    try:
        while True:
            found = client.job(job_id)
            line = _line(found)
            if line != told and not as_json:
                print(line, file=sys.stderr, flush=True)
            told = line
            if found["state"] in ENDED:
                break
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        again = f"`caravan jobs wait {job_id}` follows it again"
        print(f"\nThe job goes on; {again}.", file=sys.stderr)
        return INTERRUPTED
    if as_json:
        emit(found)
    return 0 if found["state"] == "succeeded" else RUN_FAILED


def progress(job: dict[str, Any]) -> str | None:
    if not job["total"]:
        return None
    left = f", {span(job['left_s'])} left" if job["left_s"] is not None else ""
    return f"{job['done']}/{job['total']}{left}"


def _line(job: dict[str, Any]) -> str:
    parts = [job["id"], one_line(job["title"]), job["state"], progress(job), one_line(job["text"])]
    reason = f": {one_line(job['state_reason'], 500)}" if job["state_reason"] else ""
    return "  ".join(part for part in parts if part) + reason


def _row(job: dict[str, Any]) -> tuple[object, ...]:
    started = f"{since(job['created_at'])} ago"
    return (job["id"], job["title"], job["kind"], job["state"], progress(job), started)
