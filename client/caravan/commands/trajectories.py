"""`caravan trajectories export`."""

import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from caravan.commands.shared import AsJson, command, connect, emit, group
from caravan.errors import RefusedError
from caravan.text import plain

app = group("trajectories", "Export trajectories.")


class Format(StrEnum):
    JSONL = "jsonl"
    PARQUET = "parquet"
    HTML = "html"


@command(app)
def export(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Its id, or its name.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="The id of one; instead of a run.")] = None,
    format: Annotated[
        Format,
        typer.Option(help="Lines of JSON; Parquet, a row a step; one trajectory as a page."),
    ] = Format.JSONL,
    comments: Annotated[bool, typer.Option("--comments", help="On the page, too.")] = False,
    to: Annotated[Path | None, typer.Option(help="A new file; stdout if left out.")] = None,
    purpose: Annotated[str | None, typer.Option(help="train, evaluate or demonstration.")] = None,
    category: Annotated[str | None, typer.Option(help="For example: 3 hops.")] = None,
    success: Annotated[
        bool | None, typer.Option("--success/--failure", help="Only those that did, or did not.")
    ] = None,
    min_reward: Annotated[float | None, typer.Option(help="Reward at least.")] = None,
    max_reward: Annotated[float | None, typer.Option(help="Reward at most.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Of one attempt.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the stored trajectories of a run, or one of them, each with its tokens."""
    wanted: dict[str, Any] = {
        "purpose": purpose,
        "category": category,
        "success": success,
        "min_reward": min_reward,
        "max_reward": max_reward,
        "attempt": attempt,
    }
    _check(run, trajectory, format, comments, to, wanted)
    if comments:
        wanted["comments"] = True
    with (
        connect() as client,
        client.export(run, trajectory, format=format.value, **wanted) as answer,
    ):
        if format is not Format.JSONL:
            _save(answer.iter_bytes(), to, as_json)
            return
        if to is None:
            _print(answer.iter_lines())
            return
        count, unreadable = _write(answer.iter_lines(), to)
    if as_json:
        emit({"file": str(to), "trajectories": count, "unreadable": unreadable})
        return
    print(f"{count} trajectories are in {to}.")
    if unreadable:
        print(f"{unreadable} more could not be read: their lines say why.", file=sys.stderr)


def _check(
    run: str | None,
    trajectory: str | None,
    format: Format,
    comments: bool,
    to: Path | None,
    wanted: dict[str, Any],
) -> None:
    """Raises RefusedError where options do not go together."""
    if (run is None) == (trajectory is None):
        raise RefusedError("Name a run, or one trajectory with --trajectory.")
    if format is Format.HTML and trajectory is None:
        raise RefusedError("A page holds one trajectory: name it with --trajectory.")
    if comments and format is not Format.HTML:
        raise RefusedError("--comments goes with --format html: other formats hold none.")
    if trajectory is not None and any(value is not None for value in wanted.values()):
        raise RefusedError("What narrows a run's trajectories does not go with --trajectory.")
    if to is not None and to.exists():
        raise RefusedError(f"{to} exists already: name a new file.")
    if format is Format.PARQUET and to is None and sys.stdout.isatty():
        raise RefusedError("Parquet is no text for a terminal: name a file with --to.")


def _save(pieces: Iterator[bytes], to: Path | None, as_json: bool) -> None:
    if to is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    partial = to.with_name(f".{to.name}.partial")
    try:
        with partial.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        partial.replace(to)
    finally:
        partial.unlink(missing_ok=True)
    if as_json:
        emit({"file": str(to), "bytes": to.stat().st_size})
    else:
        print(f"{to} is written.")


def _print(lines: Iterator[str]) -> None:
    terminal = sys.stdout.isatty()
    for line in lines:
        print(plain(line) if terminal else line)


def _write(lines: Iterator[str], path: Path) -> tuple[int, int]:
    """(trajectories, lines that say why one could not be read)."""
    partial = path.with_name(f".{path.name}.partial")
    count = unreadable = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(line + "\n")
                if "problem" in json.loads(line):
                    unreadable += 1
                else:
                    count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count, unreadable
