"""`caravan datasets list`, `push` and `pull`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from caravan.commands.shared import (
    AsJson,
    Project,
    command,
    connect,
    emit,
    listing,
    show,
    since,
    size,
)
from caravan.errors import RefusedError

app = listing("datasets", "List datasets, push a new version, pull one.")


@command(app, "list")
def list_(
    name: Annotated[str, typer.Argument(help="Of one dataset, to see its versions.")] = "",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List datasets, or the versions of one."""
    with connect() as client:
        found: Any = client.dataset(name) if name else client.datasets(project)
    if as_json:
        emit(found)
    elif name:
        headings = ("version", "rows", "size", "from", "note", "made")
        show(headings, map(_version, found["versions"]), "This dataset has no version yet.")
    else:
        rows = [(one["id"], one["name"], one["kind"], since(one["created_at"])) for one in found]
        show(("id", "name", "kind", "age"), rows, "No datasets yet: `caravan datasets push`.")


@command(app)
def push(
    name: Annotated[str, typer.Argument(help="Of the dataset; made if it is new.")],
    file: Annotated[Path, typer.Argument(help="JSON lines or Parquet.")],
    kind: Annotated[
        str, typer.Option(help="Of a new one: tasks, trajectories, pairs, step_labels.")
    ] = "",
    note: Annotated[str, typer.Option(help="What changed.")] = "",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Upload a file as the next version; wrong rows are named and then nothing is stored."""
    with (
        file.open("rb") as rows,
        connect() as client,
        client.dataset_to_fill(name, kind, project) as dataset,
    ):
        version = client.push_dataset(dataset["id"], file.name, rows, note)
    if as_json:
        emit({"dataset": dataset["id"], **version})
    else:
        print(f"{name} version {version['number']}, {version['id']}: {version['rows']:,} rows.")


@command(app)
def pull(
    dataset: Annotated[str, typer.Argument(help="Its name or id.")],
    version: Annotated[int | None, typer.Option(min=1, help="The newest if left out.")] = None,
    to: Annotated[Path | None, typer.Option(help="A new file; NAME-VERSION.jsonl.")] = None,
    as_json: AsJson = False,
) -> None:
    """Download a version as JSON lines."""
    from caravan.pulling import find_version, pull_dataset

    with connect() as client:
        found, chosen = find_version(client, dataset, version)
        file = to or Path(f"{found['id']}-{chosen['number']}.jsonl")
        if file.exists():
            raise RefusedError(f"{file} exists already: name a new file with --to.")
        pull_dataset(client, found["id"], chosen["number"], file)
    if as_json:
        emit({"file": str(file), "dataset": found["id"], **chosen})
    else:
        print(f"{chosen['rows']:,} rows of version {chosen['number']} are in {file}.")


def _version(one: dict[str, Any]) -> tuple[object, ...]:
    made = f"{since(one['created_at'])} ago"
    source = one["source"].get("kind", "")
    return (one["number"], f"{one['rows']:,}", size(one["size"]), source, one["note"], made)
