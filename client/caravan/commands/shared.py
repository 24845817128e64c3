"""What every command does alike: errors as one sentence and an exit code, tables, JSON."""

import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from caravan.errors import CaravanError, RefusedError
from caravan.text import one_line, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from caravan.client import Client

RUN_FAILED = 1
INTERRUPTED = 130  # as shells report Ctrl-C

AsJson = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Its id, or its name.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=5000, help="Rows at most.")]
Project = Annotated[str | None, typer.Option(help="Name or id; your oldest one if left out.")]


def command(app: typer.Typer, name: str | None = None) -> Callable[[Any], Any]:
    """Register a command whose CaravanErrors end it with a sentence and their exit code."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def spoken(*arguments: Any, **options: Any) -> None:
            try:
                function(*arguments, **options)
            except CaravanError as error:
                fail(error, bool(options.get("as_json")))
            except OSError as error:
                if error.filename is None:
                    raise
                # What is written stands under another name until it is whole.
                path = re.sub(r"\.([^/]*)\.partial$", r"\1", str(error.filename))
                refused = RefusedError(f"{path}: {error.strerror}.")
                fail(refused, bool(options.get("as_json")))

        app.command(name)(spoken)
        return spoken

    return register


def group(name: str, description: str) -> typer.Typer:
    """A command with commands of its own."""
    return typer.Typer(name=name, help=description, no_args_is_help=True)


def fail(error: CaravanError, as_json: bool) -> NoReturn:
    """Print what went wrong to stderr, with a table of field paths where there are some."""
    problems = error.problems if isinstance(error, RefusedError) else ()
    if as_json:
        found = [{"path": one.path, "message": one.message} for one in problems]
        print(json.dumps({"error": str(error), "problems": found}), file=sys.stderr)
    elif [one.message for one in problems] in ([], [str(error)]):
        where = f"{problems[0].path}: " if problems else ""
        print(f"caravan: {plain(where + str(error))}", file=sys.stderr)
    else:
        print(f"caravan: {_heading(str(error), len(problems))}", file=sys.stderr)
        rows = table("field", "problem")
        for one in problems:
            rows.add_row(cell(one.path), cell(one.message, 2000))
        console(sys.stderr).print(rows)
    raise typer.Exit(error.exit_code)


def _heading(sentence: str, count: int) -> str:
    """The detail without the messages that the table repeats."""
    start, colon, _ = plain(sentence).partition(": ")
    return f"{start}: {count} problem{'s' if count > 1 else ''}." if colon else start


def connect() -> "Client":
    from caravan.client import Client

    return Client()


def emit(data: Any) -> None:
    """One line of JSON on stdout, in ASCII: nothing in it can steer a terminal."""
    print(json.dumps(data), flush=True)


def console(file: TextIO) -> "Console":
    """As wide as the terminal; a pipe or a file gets room for every column."""
    from rich.console import Console

    return Console(file=file, width=None if file.isatty() else 200)


def table(*headings: str) -> "Table":
    """The first column, ids mostly, is cut last."""
    from rich.table import Column, Table

    columns = [Column(heading, no_wrap=not place) for place, heading in enumerate(headings)]
    return Table(*columns, box=None, header_style="bold", pad_edge=False)


def cell(value: object, most: int = 200, style: str = "") -> "Text":
    """Text for a table, safe to print; what is missing is a dash."""
    from rich.text import Text

    return Text("-" if value is None or value == "" else one_line(str(value), most), style)


def show(headings: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Print a table, or the sentence for none."""
    from rich.text import Text

    found = table(*headings)
    for row in rows:
        found.add_row(*(value if isinstance(value, Text) else cell(value) for value in row))
    if found.row_count:
        console(sys.stdout).print(found)
    else:
        print(empty)


def number(value: Any) -> str | None:
    """A measured value, in four digits; text such as NaN as it is."""
    return value if isinstance(value, str) or value is None else f"{value:.4g}"


def span(seconds: float | None) -> str:
    """A length of time: 45 s, 12 min, 3.5 h, 4 d."""
    if seconds is None:
        return "-"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def since(moment: str | None) -> str:
    """How long ago an ISO moment was."""
    if moment is None:
        return "-"
    return span((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def size(count: int) -> str:
    """Bytes in decimal units."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def free(path: Path) -> None:
    """Raises RefusedError where something has this name already."""
    if path.exists():
        raise RefusedError(f"{path} exists already: name a new file.")


def save(pieces: Iterator[bytes], path: Path) -> None:
    """Write a file that has its name once it is whole."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
