"""`caravan sweep create`, `list`, `show`, `pause`, `continue` and `stop`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from caravan.commands.shared import (
    AsJson,
    Limit,
    Project,
    command,
    connect,
    emit,
    listing,
    more,
    number,
    show,
    since,
)
from caravan.text import one_line
from caravan.yaml_files import read_mapping, read_text

app = listing("sweep", "Vary fields of a spec over many runs: create, list, show, stop.")
SweepArgument = Annotated[str, typer.Argument(metavar="SWEEP", help="Its id, or its name.")]


@command(app)
def create(
    file: Annotated[Path, typer.Argument(help="YAML: recipe or spec, space, method, budget, ...")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would try.")] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Launch a sweep; what is wrong with its file is shown field by field (exit code 2)."""
    given = _read(file)
    if project is not None:
        given["project"] = project
    with connect() as client:
        found = client.create_sweep(given, launch=not dry_run)
        url = client.url
    if as_json:
        emit(found)
    elif dry_run:
        print(_preview(found))
    else:
        print(f"{found['id']}  {one_line(found['name'])}  {url}/sweeps/{found['id']}/")


@command(app, "list")
def list_(
    limit: Limit = 20,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List sweeps, the newest first."""
    with connect() as client:
        found = client.sweeps(project, limit + (not as_json))
    if as_json:
        emit(found)
        return
    rows = [
        (
            one["id"],
            one["name"],
            one["state"],
            one["method"],
            f"{one['launched']}/{one['most']}" if one["most"] else one["launched"],
            one["active"],
            number(one["best"]),
            f"{since(one['created_at'])} ago",
        )
        for one in found[:limit]
    ]
    headings = ("id", "name", "state", "method", "trials", "at work", "best", "launched")
    show(headings, rows, "No sweeps yet: `caravan sweep create FILE`.", ("method", "launched"))
    if len(found) > limit:
        more(limit)


@command(app, "show")
def show_(sweep: SweepArgument, as_json: AsJson = False) -> None:
    """Show a sweep's trials, the best first."""
    with connect() as client:
        found = client.sweep(sweep)
        trials = client.trials(found["id"])
    if as_json:
        emit({**found, "trials": trials})
        return
    print(f"{found['id']}  {one_line(found['name'])} is {found['state']}.", end=" ")
    print(one_line(found["state_reason"], 500))
    sign = -1 if found["direction"] == "maximise" else 1
    trials.sort(key=lambda one: (one["value"] is None, sign * (one["value"] or 0), one["number"]))
    paths = [one["path"] for one in found["plan"]["space"]]
    rows = [
        (
            one["number"] + 1,
            one["state"],
            *(_value(one["params"].get(path)) for path in paths),
            _mean(one),
            " ".join(str(run["run_id"] or "deleted") for run in one["runs"]),
            one["message"],
        )
        for one in trials
    ]
    runs = "runs" if found["plan"].get("seeds", 1) > 1 else "run"
    headings = ("trial", "state", *paths, found["metric"], runs, "what happened")
    show(headings, rows, "No trial yet.", spare=("what happened",))


@command(app)
def pause(sweep: SweepArgument, as_json: AsJson = False) -> None:
    """Begin no further trial; those at work go on."""
    _control(sweep, "pause", as_json)


@command(app, "continue")
def continue_(sweep: SweepArgument, as_json: AsJson = False) -> None:
    """Go on with a paused sweep."""
    _control(sweep, "continue", as_json)


@command(app)
def stop(sweep: SweepArgument, as_json: AsJson = False) -> None:
    """End a sweep and ask the runs of its trials to save a checkpoint and end."""
    _control(sweep, "stop", as_json)


def _control(sweep: str, action: str, as_json: bool) -> None:
    with connect() as client:
        found = client.control_sweep(sweep, action)
    if as_json:
        emit(found)
    else:
        print(f"{found['id']}  {one_line(found['name'])} is {found['state']}.")


def _read(path: Path) -> dict[str, Any]:
    """What a sweep's file says. `spec: FILE.yaml` names the file of a spec, beside it."""
    data = read_mapping(path, "name a file with a sweep in YAML", "recipe or spec, space, ...")
    spec = data.get("spec")
    if isinstance(spec, str) and "\n" not in spec and spec.endswith((".yaml", ".yml", ".json")):
        data["spec"] = read_text(path.parent / spec)
    return data


def _preview(found: dict[str, Any]) -> str:
    least, most = found["steps"]
    trials = f"at most {found['trials']} trials" if found["trials"] else "trials until the budget"
    steps = f"{least}" if least == most else f"{least} to {most}"
    refused = f"; the spec refuses {len(found['refused'])} of {found['tried']} combinations tried"
    return f"{trials} of {steps} steps{refused if found['refused'] else ''}"


def _mean(trial: dict[str, Any]) -> str | None:
    """With half of its interval over seeds, where it has one."""
    found = number(trial["value"])
    if trial["band"] is None:
        return found
    low, high = trial["band"]
    return f"{found} ± {number((high - low) / 2)}"


def _value(value: Any) -> str | None:
    return number(value) if isinstance(value, int | float) else str(value)
