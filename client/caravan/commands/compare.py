"""`caravan compare`: specs, completion rates and values of runs; tasks that one of two solves."""

from typing import Annotated, Any

import typer

from caravan.commands.shared import AsJson, command, connect, emit, number, percent, show
from caravan.errors import RefusedError
from caravan.text import one_line

MOST_TASKS = 50  # printed of each direction


def add_to(app: typer.Typer) -> None:
    command(app)(compare)


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Ids or names.")],
    every: Annotated[bool, typer.Option("--all", help="Every metric, not the main ones.")] = False,
    group: Annotated[
        str, typer.Option(help="Means over runs that agree in a config field, or in `variant`.")
    ] = "",
    tasks: Annotated[
        bool, typer.Option("--tasks", help="Of two runs: what one solves and the other does not.")
    ] = False,
    category: Annotated[str, typer.Option(help="With --tasks: only of this category.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show how runs differ: in their specs, completion rates, and newest values of metrics.

    Each completion rate is set against the first run's: paired by task where both were judged on
    the same held-out tasks, else by Newcombe's interval.
    """
    if len(runs) < 2:
        raise RefusedError("Name two runs or more to compare.")
    if tasks and len(runs) != 2:
        raise RefusedError("--tasks compares two runs: name the first and the second.")
    with connect() as client:
        if tasks:
            _show_tasks(runs, client.compare_tasks(runs[0], runs[1], category), as_json)
            return
        found = client.compare(runs)
        found["completion"] = client.compare_completion(runs, group)
    if as_json:
        emit(found)
        return
    names = [run["name"] for run in found["runs"]]
    show(
        ("field", *names),
        [(row["path"], *map(_text, row["values"])) for row in found["differences"]],
        "The specs are the same.",
    )
    print()
    _show_completion(found["completion"], group)
    main = {name for run in found["runs"] for name in run["headline"]}
    metrics = {name: row for name, row in found["metrics"].items() if every or name in main}
    print()
    show(
        ("metric", *names),
        [(name, *map(number, row)) for name, row in sorted(metrics.items())],
        "They have measured nothing yet.",
    )


def _show_completion(found: dict[str, Any], group: str) -> None:
    if group:
        groups = [
            (
                one["label"],
                f"{one['n']} of {len(one['runs'])}",
                percent(one["mean"]),
                _ends(one["interval"]),
                _points(one["difference"]),
            )
            for one in found["groups"]
        ]
        headings = ("group", "runs", "mean completion", "95% t-interval", "difference (Welch)")
        show(headings, groups, "No groups.")
        print()
    rows = [
        (
            one["name"],
            percent(one["value"]),
            _ends(one["interval"]),
            _points(one["difference"]),
            _method(one["difference"]),
        )
        for one in found["runs"]
    ]
    show(("run", "completion", "95% interval", "difference", "how"), rows, "No runs.")


def _show_tasks(runs: list[str], found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(found)
        return
    p = "several trials a task" if found["p"] is None else f"McNemar's p {found['p']:.2g}"
    print(f"{found['tasks']} tasks of both, {found['left_out']} of one only; {p}.")
    print(f"{one_line(runs[1])} minus {one_line(runs[0])}: {_points(found['gain'])}")
    first, second = map(one_line, runs)
    for title, flips in (
        (f"{first} solves, {second} fails", found["lost"]),
        (f"{second} solves, {first} fails", found["gained"]),
    ):
        print(f"\n{title}: {len(flips)}")
        rows = [
            (
                flip["task_id"],
                flip["category"],
                percent(flip["before"]),
                percent(flip["after"]),
                flip["before_trajectory"],
                flip["after_trajectory"],
            )
            for flip in flips[:MOST_TASKS]
        ]
        headings = ("task", "category", "first", "second", "trajectory", "trajectory")
        show(headings, rows, "None.")
        if len(flips) > MOST_TASKS:
            print(f"... and {len(flips) - MOST_TASKS} more: --json lists all.")


def _ends(interval: dict[str, float] | None) -> str | None:
    if interval is None:
        return None
    return f"[{100 * interval['lower']:.1f}%, {100 * interval['upper']:.1f}%]"


def _points(found: dict[str, Any] | None) -> str | None:
    """A difference of rates in percentage points, with its interval."""
    if found is None:
        return None
    value, low, high = (100 * found[name] for name in ("value", "lower", "upper"))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def _method(found: dict[str, Any] | None) -> str | None:
    if found is None:
        return None
    played = "" if found["played_alike"] else ", played differently"
    if found["method"] == "independent":
        return f"independent samples{played}"
    p = "" if found["p"] is None else f", p {found['p']:.2g}"
    return f"paired, {found['tasks']} tasks{p}{played}"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
