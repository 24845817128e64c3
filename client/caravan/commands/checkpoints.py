"""`caravan checkpoints list` and `pull`."""

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from caravan.commands.shared import (
    AsJson,
    RunArgument,
    command,
    connect,
    emit,
    group,
    show,
    since,
    size,
)

app = group("checkpoints", "List checkpoints, and pull one as a folder.")


@command(app, "list")
def list_(run: RunArgument, as_json: AsJson = False) -> None:
    """List a run's checkpoints, the newest first."""
    with connect() as client:
        found = client.checkpoints(run)
    if as_json:
        emit(found)
        return
    headings = ("id", "stage", "step", "version", "size", "saved", "")
    show(headings, map(_row, found), "This run has saved no checkpoint yet.", ("version", "size"))


@command(app)
def pull(
    run: RunArgument,
    to: Annotated[Path | None, typer.Option(help="A folder; named by run and step.")] = None,
    checkpoint: Annotated[str, typer.Option(help="Its id; the last one if left out.")] = "",
    as_json: AsJson = False,
) -> None:
    """Download a checkpoint; every file is checked against its SHA-256.

    After `import caravan.models`, transformers' AutoModelForCausalLM loads the folder.
    """
    from caravan.pulling import choose_checkpoint, pull_checkpoint, quiet

    with connect() as client:
        found = client.run(run)
        chosen = choose_checkpoint(client, found["id"], checkpoint)
        folder = to or Path(f"{found['id']}-step-{chosen['step']}")
        terminal = sys.stderr.isatty() and not as_json
        with _bars() if terminal else nullcontext() as bars:
            pulled = pull_checkpoint(client, chosen, folder, _drawn(bars) if terminal else quiet)
    if as_json:
        emit({"folder": str(folder), "checkpoint": chosen["id"], "bytes": pulled})
        return
    files = f"{len(chosen['files'])} files, {size(pulled)} downloaded"
    print(f"Checkpoint {chosen['id']} (step {chosen['step']}) is in {folder}: {files}.")


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    return (
        one["id"],
        one["stage"],
        one["step"],
        one["policy_version"],
        size(sum(int(file["size"]) for file in one["files"].values())),
        f"{since(one['created_at'])} ago",
        "removed" if one["removed_at"] else "final" if one["final"] else "",
    )


def _bars() -> AbstractContextManager[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    name = TextColumn("{task.description}", markup=False)
    bars = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*bars, console=Console(stderr=True))


def _drawn(bars: Any) -> Any:
    tasks: dict[str, Any] = {}

    def progress(name: str, done: int, total: int) -> None:
        if name not in tasks:
            tasks[name] = bars.add_task(name, total=total)
        bars.update(tasks[name], completed=done)

    return progress
