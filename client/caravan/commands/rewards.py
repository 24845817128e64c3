"""`caravan rewards list`, `show`, `push` and `backtest`: reward schemes as immutable versions."""

from pathlib import Path
from typing import Annotated, Any

import typer

from caravan.commands.jobs import follow
from caravan.commands.shared import (
    AsJson,
    Project,
    command,
    connect,
    emit,
    listing,
    number,
    show,
    since,
)
from caravan.errors import RefusedError
from caravan.yaml_files import read_mapping

app = listing("rewards", "List reward schemes, show one, push a new version, backtest one.")
FIELDS = ("budget", "cache", "ngram")  # that a term may have besides its weight
DefinitionFile = Annotated[Path, typer.Argument(help="YAML with name and terms.")]


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
    file: DefinitionFile,
    note: Annotated[str, typer.Option(help="What changed.")] = "",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Store a definition as the next version of the scheme that it names."""
    definition = _definition(file)
    with connect() as client:
        version = client.push_reward_scheme(definition, note, project)
    if as_json:
        emit(version)
    else:
        print(f"{version['definition']['name']} version {version['number']} is stored.")


@command(app)
def backtest(
    scheme: Annotated[
        str, typer.Argument(metavar="SCHEME", help="A YAML file, or id or name of a stored scheme.")
    ],
    run: Annotated[
        list[str], typer.Option("--run", "-r", help="Whose trajectories; give it several times.")
    ] = [],  # noqa: B006
    dataset: Annotated[str, typer.Option(help="Or the id of a version of a dataset.")] = "",
    version: Annotated[int | None, typer.Option(help="Of a stored scheme; the newest.")] = None,
    against: Annotated[
        str, typer.Option(help="Id of a version to compare with; each run's own.")
    ] = "",
    purpose: Annotated[str, typer.Option(help="train, evaluate or demonstration only.")] = "",
    newest: Annotated[int | None, typer.Option(min=1, help="So many of each run.")] = None,
    wait: Annotated[bool, typer.Option(help="Follow it to its end.")] = True,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Grade stored trajectories with a scheme before anything is launched with it."""
    with connect() as client:
        if Path(scheme).is_file():
            what: dict[str, Any] = {"definition": _definition(Path(scheme)), "project": project}
        else:
            what = {"scheme_version": _version_id(client.reward_scheme(scheme), version)}
        job = client.backtest(
            **what,
            runs=run,
            dataset_version=dataset or None,
            against=against or None,
            filter={"purpose": purpose} if purpose else {},
            newest=newest,
        )
        if not wait:
            emit(job) if as_json else print(job["id"])
            return
        code = follow(client, job["id"], as_json)
        if code == 0 and not as_json:
            _show_backtest(client.job(job["id"])["result"])
        raise typer.Exit(code)


def _version_id(scheme: dict[str, Any], number: int | None) -> str:
    for one in scheme["versions"]:
        if number in (None, one["number"]):
            return str(one["id"])
    known = ", ".join(str(one["number"]) for one in scheme["versions"])
    raise RefusedError(f"{scheme['name']} has no version {number}; there are: {known}.")


def _definition(file: Path) -> dict[str, Any]:
    return read_mapping(file, "name a file with a reward scheme in YAML", "`name` and `terms`")


def _show_backtest(found: dict[str, Any]) -> None:
    old, new = found["old"], found["new"]
    groups = found["groups"]
    rows = [
        ("mean reward", number(old["mean"]), number(new["mean"])),
        ("standard deviation", number(old["deviation"]), number(new["deviation"])),
        ("invalid", old["invalid"], new["invalid"]),
        (f"groups without a difference, of {groups}", found["silent_old"], found["silent_new"]),
    ]
    show((f"{found['trajectories']} trajectories", "before", "after"), rows, "")
    print(f"{found['flips']} of {found['ordered_pairs']} pairs within a group change places.")
    for side in ("gainers", "losers"):
        changes = [
            (one["trajectory_id"], one["task_id"], number(one["old"]), number(one["new"]))
            for one in found[side]
        ]
        if changes:
            show((side, "task", "before", "after"), changes, "")


def _terms(definition: dict[str, Any]) -> str:
    terms = " + ".join(_term(term) for term in definition["terms"])
    later = (definition.get("curriculum") or {}).get("process")
    return f"{terms}; {', '.join(later)} later" if later else terms


def _term(term: dict[str, Any]) -> str:
    fields = [f"{name} {term[name]}" for name in FIELDS if term.get(name) is not None]
    return f"{term['weight']:g} {term['kind']}" + (f" ({', '.join(fields)})" if fields else "")
