"""REST of search: names and notes of all that a project holds, and the text of trajectories."""

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from webapp.accounts import access
from webapp.problems import RefusedError
from webapp.reviews import schemas, search, search_names
from webapp.reviews.queries import Text

router = Router(tags=["search"])
FEW = 5  # trajectories beside the names


class Question(Schema):
    q: Text = Field(min_length=1, max_length=200)


class FoundOut(Schema):
    kind: Literal["run", "experiment", "dataset", "scheme", "queue", "trajectory"]
    id: str
    name: str = Field(description="Of a trajectory: the beginning of its prompt")
    field: str = Field(description="Where the text stands: name, id, tags, notes, prompt, …")
    step: int | None = Field(description="Of a trajectory; null: in the prompt, or no trajectory")
    before: str
    match: str
    after: str
    url: str


class FoundPage(Schema):
    items: list[FoundOut]
    note: str = Field(description="What was not searched, and why; empty: everything was")


class TrajectoryFound(Schema):
    row: schemas.TrajectoryOut
    run_name: str
    matches: list[schemas.MatchOut] = Field(description="The first few")
    url: str = Field(description="Of the first match: its step and its characters")


class TrajectoriesFound(Schema):
    items: list[TrajectoryFound]
    next_cursor: str | None = Field(description="A page may be short and still have one")
    waiting: int = Field(description="Trajectories of the project that are not indexed yet")
    cut_short: int = Field(description="Those of which only the beginning is indexed")


@router.get("/search", response=FoundPage)
def search_all(request: HttpRequest, wanted: Query[Question], project: str | None = None) -> Any:
    """What holds a text, whatever its case: runs, experiments, datasets, reward schemes and review
    queues by name, id, tags or notes, and the newest trajectories by what was said in them."""
    place = access.default_project(access.actor_of(request), project)
    items = [{**vars(hit), **_words(hit.match)} for hit in search_names.named(place, wanted.q)]
    try:
        hits = search.trajectories(place, search.Wanted(q=wanted.q), limit=FEW)
    except RefusedError as refused:
        return {"items": items, "note": f"Trajectories were not searched. {refused.detail}"}
    return {"items": items + [_trajectory(hit) for hit in hits.items], "note": ""}


@router.get("/search/trajectories", response=TrajectoriesFound)
def search_trajectories(
    request: HttpRequest,
    wanted: Query[search.Wanted],
    project: str | None = None,
    cursor: str | None = None,
    limit: int = search.PAGE,
) -> Any:
    """Trajectories of a project whose prompt, turns, tool arguments or results hold a text."""
    place = access.default_project(access.actor_of(request), project)
    hits = search.trajectories(place, wanted, cursor, limit)
    return {
        **vars(hits),
        "items": [
            {
                "row": hit.row,
                "run_name": hit.row.run.name,
                "matches": hit.matches,
                "url": hit.address,
            }
            for hit in hits.items
        ],
    }


def _words(match: dict[str, Any]) -> dict[str, Any]:
    return {name: match[name] for name in ("step", "before", "match", "after")}


def _trajectory(hit: search.Hit) -> dict[str, Any]:
    return {
        "kind": "trajectory",
        "id": hit.row.pk,
        "name": hit.row.prompt[:100],
        "field": hit.matches[0]["field"],
        "url": hit.address,
        **_words(hit.matches[0]),
    }
