"""What every command does alike: errors as one sentence and an exit code, tables, JSON."""

import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from caravan.errors import CaravanError, Problem, RefusedError
from caravan.text import one_line, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from caravan.client import Client

RUN_FAILED = 1
INTERRUPTED = 130  # as shells report Ctrl-C
STACK, RUNS, MATERIAL, ACCESS, WORKSHOP = PANELS = (
    "This checkout's stack",
    "Runs",
    "What runs read, and what they leave",
    "Access and own trainers",
    "Work on Caravan itself",
)
ID, HEADING = 21, 12  # characters that columns of a table keep; longer ones may become as narrow

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


def listing(name: str, description: str) -> typer.Typer:
    """A command with commands of its own, one of them `list`: bare, it does what that one does."""
    app = typer.Typer(name=name, help=description, invoke_without_command=True)

    @app.callback()
    def bare(context: typer.Context, as_json: AsJson = False) -> None:
        if context.invoked_subcommand is None:
            lists = next(one.callback for one in app.registered_commands if one.name == "list")
            if lists is not None:
                lists(as_json=as_json)

    return app


class Arranged(TyperGroup):
    """Its help shows the commands in the order of PANELS."""

    def list_commands(self, ctx: Any) -> list[str]:
        def place(name: str) -> int:
            return PANELS.index(str(getattr(self.commands[name], "rich_help_panel", "")))

        return sorted(self.commands, key=place)


def arrange(app: typer.Typer, panels: Mapping[str, Sequence[str]]) -> None:
    """Show the commands of an app under these headings, of PANELS, in its help."""
    places = {name: heading for heading, names in panels.items() for name in names}
    for one in app.registered_commands:
        name = one.name or (one.callback.__name__ if one.callback else "")
        one.rich_help_panel = places[name]
    for group_of in app.registered_groups:
        if group_of.typer_instance is not None:
            group_of.rich_help_panel = places[str(group_of.typer_instance.info.name)]


def fail(error: CaravanError, as_json: bool) -> NoReturn:
    """Print what went wrong to stderr, with a table of field paths where there are some."""
    problems = error.problems if isinstance(error, RefusedError) else ()
    if as_json:
        found = [{"path": one.path, "message": one.message} for one in problems]
        print(json.dumps({"error": str(error), "problems": found}), file=sys.stderr)
    elif len(problems) == 1 and str(error) in (problems[0].message, _placed(problems[0])):
        print(f"caravan: {plain(_placed(problems[0]))}", file=sys.stderr)
    elif not problems:
        print(f"caravan: {plain(str(error))}", file=sys.stderr)
    else:
        print(f"caravan: {_heading(str(error), len(problems))}", file=sys.stderr)
        rows = table("field", "problem")
        for one in problems:
            rows.add_row(cell(one.path), cell(one.message, 2000))
        console(sys.stderr).print(rows)
    raise typer.Exit(error.exit_code)


def _placed(problem: Problem) -> str:
    """With the field it is about; `q`, the filter, is no name that anybody typed."""
    where = f"{problem.path}: " if problem.path not in ("", "q") else ""
    return where + problem.message


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


def show(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    spare: Sequence[str] = (),
) -> None:
    """Print a table, or the sentence for none.

    `spare` names the columns that a narrow terminal goes without, the least important first.
    """
    from rich.table import Column, Table
    from rich.text import Text

    cells = [[one if isinstance(one, Text) else cell(one) for one in row] for row in rows]
    if not cells:
        print(empty)
        return
    out = console(sys.stdout)
    wide = [max(row[at].cell_len for row in cells) for at in range(len(headings))]
    rigid = [
        at == 0 or (wide[at] <= ID and len(head) <= HEADING) for at, head in enumerate(headings)
    ]
    needed = [
        max(wide[at], len(head)) if rigid[at] else max(HEADING, min(wide[at], ID))
        for at, head in enumerate(headings)
    ]
    kept = list(range(len(headings)))
    for name in spare:
        if sum(needed[at] + 2 for at in kept) - 2 <= out.width:
            break
        kept.remove(headings.index(name))
    fits = sum(needed[at] + 2 for at in kept) - 2 <= out.width
    # What is long goes on in further lines: nothing is cut.
    columns = [
        Column(headings[at], no_wrap=at == 0 or (fits and rigid[at]), overflow="fold")
        for at in kept
    ]
    found = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in cells:
        found.add_row(*(row[at] for at in kept))
    out.print(found)


def more(limit: int) -> None:
    """Say on stderr that a list goes on after so many rows."""
    print(f"... and more: `-n {2 * limit}` shows them.", file=sys.stderr)


def percent(value: Any) -> str | None:
    """A rate, as the pages show it; text such as NaN as it is."""
    return value if isinstance(value, str) or value is None else f"{100 * value:.1f}%"


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
