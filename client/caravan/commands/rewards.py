"""`caravan rewards list`, `show` and `push`: reward schemes as immutable versions."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from caravan.commands.shared import AsJson, Project, command, connect, emit, group, show, since
from caravan.errors import RefusedError

app = group("rewards", "List reward schemes, show one, push a new version, backtest one.")
FIELDS = ("budget", "cache", "ngram")  # that a term may have besides its weight


@command(app, "list")
def list_(project: Project = None, as_json: AsJson = False) -> None:
    """List reward schemes."""
    with connect() as client:
        found = client.reward_schemes(project)
    if as_json:
        emit(found)
        return
    rows = [(one["id"], one["name"], since(one["created_at"])) for one in found]
    show(("id", "name", "age"), rows, "No reward schemes yet: a launch makes its own.")


@command(app, "show")
def show_(
    scheme: Annotated[str, typer.Argument(help="Its name or id.")], as_json: AsJson = False
) -> None:
    """Show a scheme's versions and their terms."""
    with connect() as client:
        found = client.reward_scheme(scheme)
    if as_json:
        emit(found)
        return
    rows = [
        (
            one["number"],
            one["id"],
            _terms(one["definition"]),
            one["note"],
            f"{since(one['created_at'])} ago",
        )
        for one in found["versions"]
    ]
    show(("version", "id", "terms", "note", "made"), rows, "This scheme has no version.")


@command(app)
def push(
    file: Annotated[Path, typer.Argument(help="YAML with name and terms.")],
    note: Annotated[str, typer.Option(help="What changed.")] = "",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Store a definition as the next version of the scheme that it names."""
    try:
        definition = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RefusedError(f"{file} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(definition, dict):
        raise RefusedError(f"{file} must be a mapping with `name` and `terms`.")
    with connect() as client:
        version = client.push_reward_scheme(definition, note, project)
    if as_json:
        emit(version)
    else:
        print(f"{version['definition']['name']} version {version['number']} is stored.")


def _terms(definition: dict[str, Any]) -> str:
    terms = " + ".join(_term(term) for term in definition["terms"])
    later = (definition.get("curriculum") or {}).get("process")
    return f"{terms}; {', '.join(later)} later" if later else terms


def _term(term: dict[str, Any]) -> str:
    fields = [f"{name} {term[name]}" for name in FIELDS if term.get(name) is not None]
    return f"{term['weight']:g} {term['kind']}" + (f" ({', '.join(fields)})" if fields else "")
