"""`caravan bench`: runs benchmarks, prints their figures, and keeps them with their commit."""

import ast
import importlib
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.figures import Figure, Options, from_json
from workers.local.places import CHECKOUT, Places, UserError

FOLDER = CHECKOUT / "bench"
NAME_WIDTH = 40  # up to it a metric stands on one line of the table


def names() -> dict[str, str]:
    """Every benchmark and the first line of its description: files and packages with a `run`."""
    found = {}
    for path in sorted([*FOLDER.glob("*.py"), *FOLDER.glob("*/*.py")]):
        name = ".".join(path.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text())
        if _runs(tree):
            found[name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return dict(sorted(found.items()))


def _runs(tree: ast.Module) -> bool:
    """Whether a file defines `run`, as every benchmark does and no helper."""
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return "run" in names | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def run_bench(name: str, options: Options, places: Places) -> list[Figure]:
    """Run one benchmark and store its figures. Raises UserError for an unknown name."""
    if name not in names():
        known = ", ".join(names()) or "none"
        raise UserError(f"There is no benchmark {name!r}: there are {known}.")
    if options.workers > 1 and not name.startswith("signature."):
        raise UserError(f"{name} has nothing to do at once: leave --workers out.")
    if options.minutes is not None and name != "ui":
        raise UserError(f"{name} watches nothing for a while: leave --minutes out.")
    path = _stored_file(places, name)
    with _clock(f"caravan bench {name}") as say:
        module = importlib.import_module(f"bench.{name}")
        figures: list[Figure] = module.run(replace(options, folder=path.parent, say=say))
    record = {
        "bench": name,
        "commit": commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": options.seeds,
        "figures": [figure.as_json() for figure in figures],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
    return figures


@contextmanager
def _clock(text: str) -> Iterator[Callable[[str], None]]:
    """The time since its start, on a terminal; gives a function that shows a line of progress."""
    console = Console(stderr=True)
    clock = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    clock.add_task(text, total=None)
    with clock:
        yield lambda line: console.print(line, markup=False, highlight=False)


def stored(name: str, places: Places) -> list[Figure]:
    """The figures last recorded at this commit. Raises UserError where there are none."""
    path, here = _stored_file(places, name), commit()
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for record in reversed(records):
        if record["commit"] == here:
            return [from_json(figure) for figure in record["figures"]]
    raise UserError(f"No result of {name!r} is stored for commit {here}: run it without --stored.")


def commit() -> str:
    """This checkout's commit, marked where files differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    return f"{head}+changes" if _git("status", "--porcelain", "--untracked-files=no") else head


def show(figures: list[Figure], as_json: bool) -> None:
    """A table for people, or one JSON object a line."""
    if as_json:
        for figure in figures:
            print(json.dumps(figure.as_json()))
        return
    table = Table("metric", "value", "bar", "passed", "ratio", box=None)
    longest = max((len(figure.metric) for figure in figures), default=0)
    table.columns[0].no_wrap = longest <= NAME_WIDTH
    table.columns[1].no_wrap = True
    console = Console()
    for figure in figures:
        table.add_row(
            figure.metric,
            "not taken" if figure.value is None else f"{figure.value:.4g} {figure.unit}",
            figure.bar or "-",
            "yes" if figure.passed else "NO",
            "-" if figure.ratio is None else f"{figure.ratio:.3g}",
        )
    console.print(table)
    for figure in figures:
        told = [figure.setup, f"beside {figure.peer}" if figure.peer else ""]
        if said := "; ".join(part for part in told if part):
            console.print(f"\n{figure.metric}: {said}", markup=False, highlight=False)


def _stored_file(places: Places, name: str) -> Path:
    return places.home / "bench" / f"{name}.jsonl"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
