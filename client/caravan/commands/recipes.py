"""`caravan recipes`: what can be launched by name, and the presets that a project saves."""

from pathlib import Path
from typing import Annotated, Any

import typer

from caravan.commands.shared import AsJson, Project, command, connect, emit, listing, show, since
from caravan.yaml_files import read_text

app = listing("recipes", "List and show recipes and presets; save or delete a preset.")
Name = Annotated[str, typer.Argument(help="The preset's name or id.")]


@command(app, "list")
def list_(project: Project = None, as_json: AsJson = False) -> None:
    """List the server's recipes and the presets of your projects."""
    with connect() as client:
        found = client.recipes()
        presets = client.presets(project)
    if as_json:
        emit([*({**one, "kind": "recipe"} for one in found), *map(_kind, presets)])
        return
    rows = [(one["name"], "recipe", one["description"]) for one in found]
    rows += [(one["name"], "preset", _saved(one)) for one in presets]
    show(("recipe", "", "what it does"), rows, "The server has no recipes.")


@command(app)
def save(
    name: Annotated[str, typer.Argument(help="Under which it is saved.")],
    file: Annotated[Path, typer.Argument(help="A spec in YAML.")],
    replace: Annotated[bool, typer.Option("--replace", help="The preset of this name.")] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Save a file as a preset that everybody in the project can launch."""
    text = read_text(file)
    with connect() as client:
        saved = client.save_preset(name, text, project, replace=replace)
    if as_json:
        emit(saved)
        return
    print(f"{saved['id']}  {saved['name']!r} is saved: launch it by its name.")


@command(app, "show")
def show_(
    name: Annotated[str, typer.Argument(help="A recipe's name, or a preset's name or id.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Print the text of a recipe or of a preset."""
    with connect() as client:
        recipe = next((one for one in client.recipes() if one["name"] == name), None)
        found = recipe or client.preset(name, project)
    if as_json:
        emit(found)
        return
    print(found["text"])


@command(app)
def delete(name: Name, project: Project = None, as_json: AsJson = False) -> None:
    """Delete a preset; runs that were launched with it keep their specs."""
    with connect() as client:
        found = client.preset(name, project)
        client.delete_preset(found["id"])
    if as_json:
        emit({"id": found["id"], "deleted": True})
        return
    print(f"The preset {found['name']!r} is deleted.")


def _kind(preset: dict[str, Any]) -> dict[str, Any]:
    return {**preset, "kind": "preset", "description": _saved(preset)}


def _saved(preset: dict[str, Any]) -> str:
    by = preset["updated_by"]
    who = f"by {by['display_name'] or by['email']}, " if by else ""
    return f"saved {who}{since(preset['updated_at'])} ago"
