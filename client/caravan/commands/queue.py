"""`caravan queue list`, `move` and `priority`: which queued run starts when."""

from typing import Annotated, Any, Literal

import typer

from caravan.commands.shared import (
    AsJson,
    Project,
    RunArgument,
    command,
    connect,
    emit,
    listing,
    show,
    since,
)
from caravan.text import one_line

app = listing("queue", "Show the queue of runs, move a run in it, change its priority.")


@command(app, "list")
def list_(project: Project = None, as_json: AsJson = False) -> None:
    """List queued runs in the order in which they start."""
    with connect() as client:
        found = client.queue(project)
    if as_json:
        emit(found)
        return
    rows = [
        (
            one["id"],
            one["name"],
            one["project"]["name"],
            one["place"],
            one["priority"],
            _waits_for(one["frees"]),
            since(one["since"]),
        )
        for one in found
    ]
    headings = ("id", "name", "project", "place", "priority", "waits for", "since")
    show(headings, rows, "No run waits.")


@command(app, "move")
def move_(
    run: RunArgument,
    place: Annotated[Literal["up", "down", "front"], typer.Argument(help="Where to.")],
    as_json: AsJson = False,
) -> None:
    """Move a queued run one place up or down, or to the front."""
    with connect() as client:
        _tell(client.move(run, place=place), as_json)


@command(app, "priority")
def priority_(
    run: RunArgument,
    number: Annotated[int, typer.Argument(help="-1000 to 1000; higher starts first.")],
    as_json: AsJson = False,
) -> None:
    """Give a queued run another priority."""
    with connect() as client:
        _tell(client.move(run, priority=number), as_json)


def _waits_for(runs: int) -> str:
    return "starts now" if not runs else f"{runs} run{'s' if runs > 1 else ''} to end"


def _tell(run: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(run)
    else:
        print(f"{run['id']}  {one_line(run['name'])} has priority {run['priority']}.")
