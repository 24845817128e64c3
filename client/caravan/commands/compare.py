"""`caravan compare`."""

from typing import Annotated, Any

import typer

from caravan.commands.shared import AsJson, command, connect, emit, number, show
from caravan.errors import RefusedError


def add_to(app: typer.Typer) -> None:
    command(app)(compare)


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Ids or names.")],
    every: Annotated[bool, typer.Option("--all", help="Every metric, not the main ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how runs differ: in their specs, and in the newest values of their metrics."""
    if len(runs) < 2:
        raise RefusedError("Name two runs or more to compare.")
    with connect() as client:
        found = client.compare(runs)
    if as_json:
        emit(found)
        return
    names = [run["name"] for run in found["runs"]]
    show(
        ("field", *names),
        [(row["path"], *map(_text, row["values"])) for row in found["differences"]],
        "The specs are the same.",
    )
    main = {name for run in found["runs"] for name in run["headline"]}
    metrics = {name: row for name, row in found["metrics"].items() if every or name in main}
    print()
    show(
        ("metric", *names),
        [(name, *map(number, row)) for name, row in sorted(metrics.items())],
        "They have measured nothing yet.",
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
