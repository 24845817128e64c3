"""`caravan trajectories export` and `tasks`."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from caravan.commands.jobs import follow
from caravan.commands.shared import AsJson, RunArgument, command, connect, emit, free, group, save
from caravan.errors import RefusedError
from caravan.text import lines_of, plain

if TYPE_CHECKING:
    from caravan.client import Client

app = group("trajectories", "Export trajectories, or make a dataset of their tasks.")

NARROWING: dict[str, Any] = {
    "purpose": Annotated[str | None, typer.Option(help="train, evaluate or demonstration.")],
    "category": Annotated[str | None, typer.Option(help="For example: 3 hops.")],
    "success": Annotated[
        bool | None, typer.Option("--success/--failure", help="Only those that did, or did not.")
    ],
    "min_reward": Annotated[float | None, typer.Option(help="Reward at least.")],
    "max_reward": Annotated[float | None, typer.Option(help="Reward at most.")],
    "attempt": Annotated[int | None, typer.Option(min=1, help="Of one attempt.")],
}


class Format(StrEnum):
    JSONL = "jsonl"
    PARQUET = "parquet"
    HTML = "html"


def narrowed(function: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of NARROWING too; `narrowing` holds those that were given."""

    @functools.wraps(function)
    def told(*arguments: Any, **options: Any) -> None:
        given = {name: options.pop(name) for name in NARROWING}
        options["narrowing"] = {name: value for name, value in given.items() if value is not None}
        function(*arguments, **options)

    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.name != "narrowing"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in NARROWING.items()
    ]
    told.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
    return told


@command(app)
@narrowed
def export(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Its id, or its name.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="The id of one; instead of a run.")] = None,
    format: Annotated[
        Format,
        typer.Option(help="Lines of JSON; Parquet, a row a step; one trajectory as a page."),
    ] = Format.JSONL,
    comments: Annotated[bool, typer.Option("--comments", help="On the page, too.")] = False,
    to: Annotated[Path | None, typer.Option(help="A new file; stdout if left out.")] = None,
    as_json: AsJson = False,
    *,
    narrowing: dict[str, Any],
) -> None:
    """Write the stored trajectories of a run, or one of them, each with its tokens."""
    _check(run, trajectory, format, comments, to, narrowing)
    with connect() as client:
        if run is not None and client.export_extent(run, **narrowing)["needs_job"]:
            _by_job(client, run, format, to, narrowing, as_json)
            return
        query = {"comments": True} if comments else narrowing
        with client.export(run, trajectory, format=format.value, **query) as answer:
            if format is not Format.JSONL:
                _save(answer.iter_bytes(), to, as_json)
                return
            if to is None:
                _print(lines_of(answer.iter_bytes()))
                return
            count, unreadable = _write(lines_of(answer.iter_bytes()), to)
    _told(to, count, unreadable, as_json)


@command(app)
@narrowed
def tasks(
    run: RunArgument,
    name: Annotated[str, typer.Option(help="Of the dataset; made if it is new.")],
    as_json: AsJson = False,
    *,
    narrowing: dict[str, Any],
) -> None:
    """Make a dataset of the tasks of a run's trajectories, each once: --failure for those it failed
    at. A run can train on it, or be judged by it."""
    with connect() as client:
        job = client.collect_tasks(run, name, narrowing)["id"]
        if code := follow(client, job):
            raise typer.Exit(code)
        made = client.job(job)["result"]
    if as_json:
        emit(made)
    else:
        print(f"{name} version {made['number']}, {made['version']}: {made['rows']:,} rows.")


def _by_job(
    client: "Client",
    run: str,
    format: Format,
    to: Path | None,
    narrowing: dict[str, Any],
    as_json: bool,
) -> None:
    """What is too much to be sent while it is made: followed to its end, then fetched."""
    job = client.start_export(run, format.value, narrowing)["id"]
    if code := follow(client, job):
        raise typer.Exit(code)
    made = client.job(job)["result"]
    with client.job_file(job) as answer:
        if to is None and format is Format.JSONL:
            _print(lines_of(answer.iter_bytes()))
        elif to is None:
            _save(answer.iter_bytes(), None, as_json)
        else:
            save(answer.iter_bytes(), to)
            _told(to, made["trajectories"], made["unreadable"], as_json)


def _told(to: Path, count: int, unreadable: int, as_json: bool) -> None:
    if as_json:
        emit({"file": str(to), "trajectories": count, "unreadable": unreadable})
        return
    print(f"{count} trajectories are in {to}.")
    if unreadable:
        print(f"{unreadable} more could not be read: the file says why.", file=sys.stderr)


def _check(
    run: str | None,
    trajectory: str | None,
    format: Format,
    comments: bool,
    to: Path | None,
    narrowing: dict[str, Any],
) -> None:
    """Raises RefusedError where options do not go together."""
    if (run is None) == (trajectory is None):
        raise RefusedError("Name a run, or one trajectory with --trajectory.")
    if format is Format.HTML and trajectory is None:
        raise RefusedError("A page holds one trajectory: name it with --trajectory.")
    if comments and format is not Format.HTML:
        raise RefusedError("--comments goes with --format html: other formats hold none.")
    if trajectory is not None and narrowing:
        raise RefusedError("What narrows a run's trajectories does not go with --trajectory.")
    if to is not None:
        free(to)
    if format is Format.PARQUET and to is None and sys.stdout.isatty():
        raise RefusedError("Parquet is no text for a terminal: name a file with --to.")


def _save(pieces: Iterator[bytes], to: Path | None, as_json: bool) -> None:
    if to is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    save(pieces, to)
    if as_json:
        emit({"file": str(to), "bytes": to.stat().st_size})
    else:
        print(f"{to} is written.")


def _print(lines: Iterator[bytes]) -> None:
    terminal = sys.stdout.isatty()
    for line in lines:
        print(plain(line.decode()) if terminal else line.decode())


def _write(lines: Iterator[bytes], path: Path) -> tuple[int, int]:
    """(trajectories, lines that say why one could not be read)."""
    counts = {True: 0, False: 0}

    def written() -> Iterator[bytes]:
        for line in lines:
            counts["problem" in json.loads(line)] += 1
            yield line + b"\n"

    save(written(), path)
    return counts[False], counts[True]
