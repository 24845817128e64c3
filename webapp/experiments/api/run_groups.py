"""REST of many runs at once: groups with means over their runs, and one change to all of them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import queries, services
from webapp.experiments.models import Run
from webapp.experiments.run_groups import Aggregate, list_groups
from webapp.problems import invalid_field
from webapp.rest.schemas import Cursor, Limit

router = Router(tags=["runs"])


class MeanOut(Schema):
    """Newest finite values of a metric over the runs of a group; `lower` and `upper` end the 95%
    t-interval of the mean and are null of fewer than two runs."""

    n: int
    mean: float
    deviation: float | None
    lower: float | None
    upper: float | None


class GroupOut(Schema):
    key: str | None  # null: the runs have no such field
    n: int
    runs: list[str]  # ids, the newest first
    active: int
    failed: int
    newest: datetime
    metrics: dict[str, MeanOut | None]  # null: no run has a value


class GroupPage(Schema):
    items: list[GroupOut]
    next_cursor: str | None
    total: int


@router.get("/run-groups", response=GroupPage)
def group_runs(
    request: HttpRequest,
    by: Annotated[str, Query(description="variant, or a path of the spec as seed")] = "variant",
    metrics: Annotated[str, Query(description="names, separated by commas")] = "success,reward",
    project: str | None = None,
    q: str = "",
    sort: Annotated[str, Query(description="newest, n or a metric; `-` descending")] = "-newest",
    archived: bool = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Runs in groups, each with means over its runs. A variant is a config but for its seed."""
    actor = access.actor_of(request)
    chosen = access.project_or_all(actor, project)
    page = list_groups(
        queries.find_runs(actor, project=chosen, q=q, archived=archived),
        group=by,
        metrics=[name for name in metrics.split(",") if name],
        sort=sort,
        cursor=cursor,
        limit=limit,
    )
    items = [
        {**vars(one), "metrics": {name: mean_out(found) for name, found in one.metrics.items()}}
        for one in page.items
    ]
    return {"items": items, "next_cursor": page.next_cursor, "total": page.total}


def mean_out(found: Aggregate) -> dict[str, Any] | None:
    if found.sample is None:
        return None
    ends = found.interval
    return {
        **vars(found.sample),
        "lower": ends.lower if ends else None,
        "upper": ends.upper if ends else None,
    }


class BulkIn(Schema):
    """Either `runs`, or `all` with what the filter finds in the project."""

    project: str | None = None
    action: Literal["tag", "untag", "stop", "archive", "unarchive"]
    tag: str = ""
    runs: list[str] = []
    all: bool = False
    q: str = ""
    archived: bool = False


class RefusedRun(Schema):
    run: str
    name: str
    detail: str


class BulkOut(Schema):
    done: int
    refused: list[RefusedRun]


@router.post("/run-changes", response=BulkOut)
def change_runs(request: HttpRequest, data: BulkIn) -> Any:
    """Tag, untag, stop, archive or bring back many runs of a project at once."""
    actor = access.actor_of(request)
    project = access.default_project(actor, data.project, Role.EDITOR)
    if data.all == bool(data.runs):
        raise invalid_field("runs", "Name runs, or give `all` and a filter, and not both.")
    if data.all:
        found = queries.find_runs(actor, project=project.pk, q=data.q, archived=data.archived)
    else:
        found = Run.objects.filter(project=project, pk__in=data.runs)
    changed = services.change_runs(project, actor.user, found, data.action, data.tag)
    refused = [{"run": run.pk, "name": run.name, "detail": why} for run, why in changed.refused]
    return {"done": changed.done, "refused": refused}
