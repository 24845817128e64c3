"""`caravan review`: queues, the next item, a verdict, a dataset version, the inbox."""

from typing import Annotated, Any

import typer

from caravan.commands.shared import (
    AsJson,
    Project,
    RunArgument,
    command,
    connect,
    emit,
    listing,
    number,
    show,
    since,
)
from caravan.errors import RefusedError
from caravan.text import one_line

app = listing("review", "Review trajectories in queues, and make datasets of the verdicts.")
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Its id, or its name.")]
ItemArgument = Annotated[str, typer.Argument(metavar="ITEM", help="Its id, from `next`.")]
SAMPLES = "newest, random, disagreement, outliers or newly_failing."


def _reviewing(client: Any) -> Any:
    from caravan.reviewing import Reviewing

    return Reviewing(client)


@command(app, "list")
def list_(project: Project = None, as_json: AsJson = False) -> None:
    """List review queues, the newest first."""
    with connect() as client:
        found = _reviewing(client).queues(project)
    if as_json:
        emit(found)
        return
    rows = [
        (one["id"], one["name"], f"{one['done']}/{one['items']}", one["disputed"],
         "closed" if one["closed_at"] else "open", since(one["created_at"]))
        for one in found
    ]  # fmt: skip
    headings = ("id", "name", "settled", "disputed", "state", "age")
    show(headings, rows, "No review queues yet: `caravan review new`.")


@command(app, "show")
def show_(queue: QueueArgument, project: Project = None, as_json: AsJson = False) -> None:
    """Show where a queue stands, how far its reviewers agree, and what was made of it."""
    with connect() as client:
        reviewing = _reviewing(client)
        found = reviewing.queue(queue, project)
        versions = reviewing.versions(found["queue"]["id"])
    if as_json:
        emit(found | {"versions": versions})
        return
    counts = ", ".join(f"{count} {name}" for name, count in found["counts"].items())
    print(f"{one_line(found['queue']['name'], 120)}: {counts}; {found['left']} left for you.")
    if found["agreement"]:
        alpha = number(found["agreement"]["alpha"]) or "not computed"
        print(f"Agreement on {found['agreement']['items']} items: alpha {alpha}.")
    for one in versions:
        runs = ", ".join(learned["run"] for learned in one["runs"]) or "no run yet"
        print(f"{one['id']}: {one['rows']:,} {one['kind']}, learned by {runs}.")


@command(app)
def new(
    run: RunArgument,
    name: Annotated[str, typer.Argument(help="Of the new queue.")],
    sample: Annotated[str, typer.Option(help=SAMPLES)] = "newest",
    size: Annotated[int, typer.Option(min=1, help="Items, at most.")] = 50,
    pairwise: Annotated[bool, typer.Option("--pairwise", help="Two side by side.")] = False,
    double: Annotated[bool, typer.Option("--double", help="Two blind reviews an item.")] = False,
    label: Annotated[list[str] | None, typer.Option(help="Of the rubric; repeat it.")] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of the filter, as success=false.")
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Make nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a queue of trajectories of a run, or see which it would take."""
    filters = dict(_pair(one) for one in where or [])
    wanted: dict[str, Any] = {
        "sample": sample,
        "size": size,
        "style": "pairwise" if pairwise else "single",
    }
    with connect() as client:
        reviewing = _reviewing(client)
        if preview:
            found = reviewing.preview(run, filters, **wanted)
        else:
            more = {"rubric": {"labels": label or []}, "reviews_per_item": 2 if double else 1}
            found = reviewing.create(run, name, filters, **wanted, **more)
    if as_json:
        emit(found)
    elif preview:
        print(f"{len(found['picks'])} of {found['found']} of {found['matching']} that match.")
        rows = [
            (one["trajectory"], one["other"], one["reason"].get("kind")) for one in found["picks"]
        ]
        show(("trajectory", "other", "why"), rows, "None.")
    else:
        print(found["id"])


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals:
        raise RefusedError(f"--where {given!r}: give NAME=VALUE, as success=false.")
    return name, value


@command(app, "next")
def next_(
    queue: QueueArgument,
    after: Annotated[int, typer.Option(help="Behind this position, to skip one.")] = -1,
    as_json: AsJson = False,
) -> None:
    """Take the next item; it is held for you for five minutes."""
    with connect() as client:
        reviewing = _reviewing(client)
        found = reviewing.next(queue, after)
        item = reviewing.item(found["item"]) if found["item"] else None
    if as_json:
        emit(item)
    elif item is None:
        print("Nothing is left for you in this queue now.")
    else:
        both = f" and {item['other']}" if item["other"] else ""
        print(f"{item['id']} (position {item['position']}): {item['trajectory']}{both}")
        print(f"{client.url}/queue-items/{item['id']}/")


@command(app)
def verdict(
    item: ItemArgument,
    choice: Annotated[str, typer.Argument(help="accepted or rejected; first, second or same.")],
    label: Annotated[list[str] | None, typer.Option(help="Repeat it for several.")] = None,
    score: Annotated[
        list[str] | None, typer.Option(help="SCALE=NUMBER; repeat it for each scale.")
    ] = None,
    note: Annotated[str, typer.Option(help="Markdown.")] = "",
    as_json: AsJson = False,
) -> None:
    """Give or change your verdict; on a dispute of others, your ruling."""
    scores = dict(_score(one) for one in score or [])
    with connect() as client:
        found = _reviewing(client).verdict(item, choice, label, scores, note)
    emit(found) if as_json else print(f"{found['choice']} by {found['reviewer']}.")


def _score(given: str) -> tuple[str, int]:
    name, _, value = given.rpartition("=")
    if not name or not value.lstrip("-").isdecimal():
        raise RefusedError(f"--score {given!r}: give SCALE=NUMBER, as Efficiency=4.")
    return name, int(value)


@command(app)
def undo(item: ItemArgument, as_json: AsJson = False) -> None:
    """Take your verdict on an item back."""
    with connect() as client:
        _reviewing(client).withdraw(item)
    emit({"item": item}) if as_json else print(f"Your verdict on {item} is taken back.")


@command(app)
def dataset(
    queue: QueueArgument,
    name: Annotated[str, typer.Argument(help="Of the dataset; made if it is new.")],
    kind: Annotated[str, typer.Option(help="Of a new one: trajectories, pairs, step_labels.")] = "",
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Make a dataset version of verdicts: accepted -> SFT, pairs -> DPO, marks on steps."""
    with connect() as client:
        found = _reviewing(client).make_dataset(queue, name, kind, project)
    if as_json:
        emit(found)
        return
    print(f"{found['id']}: version {found['number']} of {name} holds {found['rows']:,} rows.")
    for reason, count in found["source"].get("left_out", {}).items():
        print(f"  left out: {count} {one_line(reason, 200)}")


@command(app)
def inbox(
    unread: Annotated[bool, typer.Option("--unread", help="Unread ones only.")] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show who mentions or answers you, and which queues wait for you."""
    with connect() as client:
        found = _reviewing(client).inbox(project, unread)
    if as_json:
        emit(found)
        return
    for one in found["waiting"]:
        print(f"{one['id']} {one_line(one['name'], 80)}: {one['items']} left for you")
    for one in found["disputed"]:
        print(f"{one['id']} {one_line(one['name'], 80)}: {one['items']} disputed")
    rows = [
        (one["kind"], one["author"], one["trajectory"], one["text"], since(one["created_at"]))
        for one in found["notices"]
    ]
    show(("kind", "from", "trajectory", "text", "age"), rows, "No mentions and no replies.")


@command(app)
def suspects(
    scheme: Annotated[str, typer.Argument(help="A reward scheme's name or id.")],
    version: Annotated[int | None, typer.Option(min=1, help="Of this version only.")] = None,
    as_json: AsJson = False,
) -> None:
    """List labels that contradict the reward of a scheme."""
    with connect() as client:
        found = _reviewing(client).suspects(scheme, version)
    if as_json:
        emit(found)
        return
    rows = [
        (one["trajectory"], one["version"], one["label"], one["contradiction"],
         number(one["reward"]), number(one["group_mean"]))
        for one in found["items"]
    ]  # fmt: skip
    headings = ("trajectory", "version", "label", "contradiction", "reward", "group mean")
    show(headings, rows, "No label contradicts this scheme.")
