"""`caravan runs`, `watch`, `stop`, `resume`, `archive` and `delete`."""

from typing import Annotated, Any
from urllib.parse import parse_qsl

import typer

from caravan.commands.shared import (
    AsJson,
    Limit,
    Project,
    RunArgument,
    cell,
    command,
    connect,
    emit,
    more,
    percent,
    show,
    since,
)
from caravan.commands.watch import COMPLETION, follow
from caravan.text import one_line

NEWEST = "-created"
COLOURS = {
    "running": "green",
    "succeeded": "bold green",
    "failed": "bold red",
    "lost": "bold red",
    "unreachable": "yellow",
    "interrupted": "yellow",
    "stopping": "yellow",
}


def add_to(app: typer.Typer) -> None:
    for function in (runs, watch, stop, resume, archive, delete):
        command(app)(function)


def runs(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[FILTER]...", help="As status:running success>0.5 tag:baseline"),
    ] = [],  # noqa: B006
    limit: Limit = 20,
    sort: Annotated[str, typer.Option(help="created, name, state or a metric.")] = NEWEST,
    archived: Annotated[bool, typer.Option("--archived", help="Those put away.")] = False,
    view: Annotated[str, typer.Option(help="A saved view: its filter and its order.")] = "",
    group: Annotated[
        str, typer.Option(help="Means over runs that agree in a config field, or in `variant`.")
    ] = "",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first; a filter chooses among them.

    `--group variant` takes repeats of one config with other seeds together.
    """
    q = " ".join(words)
    with connect() as client:
        if view:
            saved = dict(parse_qsl(client.saved_view("runs", view, project)["query"]))
            q = " ".join(part for part in (saved.get("q", ""), q) if part)
            sort = saved.get("sort", sort) if sort == NEWEST else sort
            group, archived = group or saved.get("group", ""), archived or "archived" in saved
        if group:
            order = "-newest" if sort == NEWEST else sort
            groups = client.run_groups(
                group, q, sort=order, project=project, archived=archived, limit=limit
            )
            _show_groups(groups, group, as_json)
            return
        found = client.runs(
            q, sort=sort, project=project, archived=archived, limit=limit + (not as_json)
        )
    if as_json:
        emit(found)
        return
    headings = ("id", "name", "state", "step", "completion", "experiment", "launched")
    empty = "No runs match." if q else "No runs yet: `caravan launch`."
    show(headings, map(_row, found[:limit]), empty, spare=("experiment", "launched", "step"))
    if len(found) > limit:
        more(limit)


def _show_groups(groups: list[dict[str, Any]], by: str, as_json: bool) -> None:
    if as_json:
        emit(groups)
        return
    names = list(groups[0]["metrics"]) if groups else []
    rows = [
        (one["key"], one["n"], *(mean(one["metrics"][name]) for name in names), one["runs"][0])
        for one in groups
    ]
    show((by, "runs", *names, "newest"), rows, "No runs.")


def mean(found: dict[str, Any] | None) -> str | None:
    """Mean, 95% interval, and of how many runs."""
    if found is None:
        return None
    ends = f" [{found['lower']:.4g}, {found['upper']:.4g}]" if found["lower"] is not None else ""
    return f"{found['mean']:.4g}{ends} n={found['n']}"


def watch(run: RunArgument, as_json: AsJson = False) -> None:
    """Follow a run to its end; exit code 0 if it succeeds, 1 if it ends otherwise."""
    with connect() as client:
        raise typer.Exit(follow(client, client.run_id(run), as_json))


def stop(run: RunArgument, as_json: AsJson = False) -> None:
    """Ask a run to save a checkpoint and end."""
    with connect() as client:
        _tell(client.stop(run), as_json)


def resume(run: RunArgument, as_json: AsJson = False) -> None:
    """Go on from the newest checkpoint of a run that ended early, as a new attempt."""
    with connect() as client:
        _tell(client.resume(run), as_json)


def archive(
    run: RunArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Put it back into the lists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a run that has ended out of the lists."""
    with connect() as client:
        found = client.archive(run, not undo)
    if as_json:
        emit(found)
    else:
        print(f"{found['id']}  {one_line(found['name'])} is {'back' if undo else 'archived'}.")


def delete(
    run: RunArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove an archived run for good: numbers, trajectories, checkpoints. Admins only."""
    with connect() as client:
        found = client.run(run)
        named = f"{found['id']}  {one_line(found['name'])}"
        if not yes:
            typer.confirm(f"Delete {named} for good?", abort=True, err=True)
        client.delete(found["id"])
    if as_json:
        emit({"id": found["id"], "deleted": True})
    else:
        print(f"{named} is deleted.")


def _tell(run: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(run)
    else:
        print(f"{run['id']}  {one_line(run['name'])} is {run['state']}.")


def _row(run: dict[str, Any]) -> tuple[object, ...]:
    return (
        run["id"],
        run["name"],
        cell(run["state"], style=COLOURS.get(run["state"], "")),
        f"{run['step']}/{run['steps']}" if run["steps"] else None,
        percent(run["headline"].get(COMPLETION)),
        run["experiment"]["name"],
        f"{since(run['created_at'])} ago",
    )
