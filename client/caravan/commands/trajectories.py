"""`caravan trajectories export`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from caravan.commands.shared import AsJson, RunArgument, command, connect, emit, group
from caravan.errors import RefusedError
from caravan.text import plain

app = group("trajectories", "Export trajectories.")


@command(app)
def export(
    run: RunArgument,
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
    """Write the stored trajectories of a run as JSON lines, each with its tokens."""
    if to is not None and to.exists():
        raise RefusedError(f"{to} exists already: name a new file.")
    wanted: dict[str, Any] = {
        "purpose": purpose,
        "category": category,
        "success": success,
        "min_reward": min_reward,
        "max_reward": max_reward,
        "attempt": attempt,
    }
    with connect() as client, client.trajectories(run, **wanted) as lines:
        if to is None:
            _print(lines)
            return
        count, unreadable = _write(lines, to)
    if as_json:
        emit({"file": str(to), "trajectories": count, "unreadable": unreadable})
        return
    print(f"{count} trajectories are in {to}.")
    if unreadable:
        print(f"{unreadable} more could not be read: their lines say why.", file=sys.stderr)


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
