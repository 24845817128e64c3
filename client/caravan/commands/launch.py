"""`caravan launch`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from caravan.commands.dry_run import tried
from caravan.commands.shared import AsJson, Project, command, connect, emit
from caravan.commands.watch import follow
from caravan.errors import RefusedError
from caravan.text import one_line
from caravan.yaml_files import read_text

Tags = Annotated[list[str], typer.Option("--tag", help="May be given several times.")]
Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="PATH=VALUE", help="Replace a field: --set stages.1.steps=50"),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Start every part, train one step of each stage, and stop."),
]


def add_to(app: typer.Typer) -> None:
    command(app)(launch)


def launch(
    recipe: Annotated[
        str, typer.Argument(help="A YAML file, or a recipe or preset of the server.")
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Follow it to its end.")] = False,
    dry_run: DryRun = False,
    overrides: Overrides = [],  # noqa: B006  (typer copies it)
    name: Annotated[str, typer.Option(help="Of the run; numbered if left out.")] = "",
    experiment: Annotated[str, typer.Option(help="Whose question it answers.")] = "",
    notes: Annotated[str, typer.Option(help="Markdown.")] = "",
    tags: Tags = [],  # noqa: B006
    priority: Annotated[int, typer.Option(help="In the queue; higher starts first.")] = 0,
    reward: Annotated[
        str | None, typer.Option(help="Id of a reward scheme's version (`caravan rewards show`).")
    ] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Launch a run; what is wrong with its spec is shown field by field (exit code 2)."""
    fields: dict[str, Any] = {
        "overrides": dict(override(given) for given in overrides),
        "name": name,
        "experiment": experiment,
        "notes": notes,
        "tags": tags,
        "priority": priority,
        "dry_run": dry_run,
        "reward": reward,
        "project": project,
    }
    with connect() as client:
        text = _file(recipe)
        given = client.named(recipe, project) if text is None else {"spec": text}
        run = client.launch(**given, **fields)  # type: ignore[arg-type]
        if not (as_json and dry_run):
            told = f"{run['id']}  {one_line(run['name'])}  {client.url}/runs/{run['id']}/"
            emit(run) if as_json else print(told)
        if dry_run:
            raise typer.Exit(tried(client, run["id"], as_json))
        if watch:
            raise typer.Exit(follow(client, run["id"], as_json))


def _file(recipe: str) -> str | None:
    """The text of a recipe file; None where the name is that of a recipe of the server."""
    path = Path(recipe)
    if not (path.suffix in (".yaml", ".yml", ".json") or "/" in recipe or path.exists()):
        return None
    return read_text(path, "name one, or a recipe of the server (`caravan recipes`)")


def override(given: str) -> tuple[str, Any]:
    path, equals, text = given.partition("=")
    if not equals or not path:
        raise RefusedError(f"--set takes PATH=VALUE, such as stages.1.steps=50, not {given!r}.")
    try:
        return path, json.loads(text)
    except ValueError:
        pass
    try:
        return path, yaml.safe_load(text)
    except yaml.YAMLError:
        raise RefusedError(f"The value in --set {given!r} cannot be read: quote it.") from None
