"""REST of comparing runs."""

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema

from webapp.accounts import access
from webapp.experiments import queries
from webapp.experiments.api import schemas
from webapp.experiments.models import Run
from webapp.monitoring.numbers import encode_optional
from webapp.monitoring.queries import series_row
from webapp.problems import invalid_field

router = Router(tags=["compare"])


class DifferenceOut(Schema):
    path: str
    values: list[Any]


class ComparisonOut(Schema):
    """`values` and `metrics` have one entry for each run, in the order asked for."""

    runs: list[schemas.RunOut]
    differences: list[DifferenceOut]
    metrics: dict[str, list[Any]]
    series: list[dict[str, Any]]  # as of runs/{id}/series, with `run`


@router.get("/compare", response=ComparisonOut)
def compare(
    request: HttpRequest, runs: Annotated[str, Query(description="ids, separated by commas")]
) -> Any:
    """Config differences, newest values and series of several runs."""
    ids = list(dict.fromkeys(part.strip() for part in runs.split(",") if part.strip()))
    if not ids or len(ids) > queries.MAX_COMPARED:
        raise invalid_field("runs", f"Name 1 to {queries.MAX_COMPARED} runs by their ids.")
    rows = Run.objects.select_related("project", "experiment", "created_by")
    visible = access.visible(rows, access.actor_of(request)).in_bulk(ids)
    found = queries.compare([access.found_or_404(visible.get(pk)) for pk in ids])
    return {
        "runs": found.runs,
        "differences": found.differences,
        "metrics": {
            name: [encode_optional(value) for value in values]
            for name, values in found.metrics.items()
        },
        "series": [
            {"run": series.run_id, **series_row(series)}
            for group in found.series.values()
            for series in group
        ],
    }
