"""REST of comparing runs: specs and values, curves, completion rates, tasks that flip."""

import json
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from webapp.accounts import access
from webapp.experiments import comparing, queries
from webapp.experiments.api import schemas
from webapp.experiments.models import Run
from webapp.monitoring import many_curves
from webapp.monitoring.numbers import encode_optional
from webapp.monitoring.queries import series_row
from webapp.monitoring.rollups import BARE_COLUMNS, COLUMNS, MAX_BUCKETS
from webapp.problems import invalid_field

router = Router(tags=["compare"])
RunIds = Annotated[str, Query(description="ids, separated by commas")]
RunId = Annotated[str, Query(description="id of a run")]
Grouping = Annotated[str, Query(description="variant, or a path of the spec as seed")]
MAX_NAMES = 60


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
def compare(request: HttpRequest, runs: RunIds) -> Any:
    """Config differences, newest values and series of several runs."""
    found = queries.compare(_runs(request, runs))
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


class GroupCurves(Schema):
    """`curves`: by metric and axis the mean over the runs in buckets of 2**level steps, with `low`
    and `high` of its 95% t-interval, `least` and `most` of the runs, and `n` runs in each."""

    key: str | None
    label: str
    runs: list[str]
    curves: list[dict[str, Any]]


class CurvesOut(Schema):
    """Without `group`, `series`, each with its run and `buckets`; with it, `groups`."""

    columns: list[str] = COLUMNS
    cursors: dict[str, int]  # by run: up to which the curves were read, at least
    series: list[dict[str, Any]] = []
    groups: list[GroupCurves] = []


@router.get("/compare/curves", response=CurvesOut)
def curves(
    request: HttpRequest,
    runs: RunIds,
    names: Annotated[str, Query(description="metric names, separated by commas")],
    group: Grouping = "",
    buckets: Annotated[int, Query(ge=1, le=MAX_BUCKETS)] = 300,
    bare: Annotated[
        bool, Query(description="only what lines without bands need; `columns` says what")
    ] = False,
) -> Any:
    """Curves of many runs at once, or the mean curves of groups of them."""
    found = _runs(request, runs)
    wanted = [name for name in dict.fromkeys(names.split(",")) if name]
    if not wanted or len(wanted) > MAX_NAMES:
        raise invalid_field("names", f"Name 1 to {MAX_NAMES} metrics.")
    columns = BARE_COLUMNS if bare and not group else COLUMNS
    answer: dict[str, Any] = {"columns": columns, "cursors": {run.pk: run.cursor for run in found}}
    if not group:
        answer |= {"series": many_curves.curves(found, wanted, buckets, bare), "groups": []}
    else:
        groups = comparing.grouped(found, group)
        bands = many_curves.bands([one.runs for one in groups], wanted, buckets)
        answer["series"] = []
        answer["groups"] = [
            {**_group(one), "curves": [vars(band) for band in of]}
            for one, of in zip(groups, bands, strict=True)
        ]
    # Past the schema's checks, which take longer than the curves: all numbers here are finite.
    text = json.dumps(answer, allow_nan=False, separators=(",", ":"))
    return HttpResponse(text, content_type="application/json")


class IntervalOut(Schema):
    value: float
    lower: float
    upper: float


class RateDifferenceOut(IntervalOut):
    """`paired`: by task, on the tasks of both; `independent`: Newcombe's, of separate samples."""

    method: Literal["paired", "independent"]
    p: float | None  # McNemar's exact test; null: not paired, or several trials a task
    tasks: int | None
    left_out: int
    gained: int
    lost: int
    played_alike: bool  # at one temperature and number of trials


class RateOut(Schema):
    run: str
    name: str
    evaluation: int | None  # id
    value: float | None
    interval: IntervalOut | None
    tasks: int | None
    difference: RateDifferenceOut | None  # from the first run


class GroupRateOut(Schema):
    """Mean of the runs' rates with Student's interval; the difference is Welch's."""

    key: str | None
    label: str
    runs: list[str]
    n: int  # runs that have a rate
    mean: float | None
    interval: IntervalOut | None
    difference: IntervalOut | None  # from the first group


class CompletionOut(Schema):
    runs: list[RateOut]
    groups: list[GroupRateOut]


@router.get("/compare/completion", response=CompletionOut)
def completion(request: HttpRequest, runs: RunIds, group: Grouping = "") -> Any:
    """Completion rates on held-out tasks, each against the first run's, and over groups."""
    found = _runs(request, runs)
    rates = comparing.rates(found)
    rows = zip(rates, comparing.against_base(rates), strict=True)
    groups = comparing.group_rates(comparing.grouped(found, group), rates) if group else []
    return {
        "runs": [_rate(rate, difference) for rate, difference in rows],
        "groups": [
            {
                **_group(one.group),
                "n": one.sample.n if one.sample else 0,
                "mean": one.sample.mean if one.sample else None,
                "interval": one.interval,
                "difference": one.difference,
            }
            for one in groups
        ],
    }


@router.get("/compare/tasks", response=dict[str, Any])
def tasks(request: HttpRequest, first: RunId, second: RunId, category: str = "") -> Any:
    """Tasks that one of two runs solves and the other does not, of the same held-out tasks: as
    evaluations/compare, with the runs' evaluations and the number of tasks of each category."""
    pair = _runs(request, f"{first},{second}")
    if len(pair) != 2:
        raise invalid_field("second", "Name two different runs.")
    found = comparing.flips(pair[0], pair[1], category)
    return {
        "first": found.first.id,
        "second": found.second.id,
        "categories": found.categories,
        **found.comparison.to_dict(),
    }


def _runs(request: HttpRequest, given: str) -> list[Run]:
    """The runs in the order asked for. Raises Http404 and RefusedError."""
    ids = list(dict.fromkeys(part.strip() for part in given.split(",") if part.strip()))
    if not ids or len(ids) > queries.MAX_COMPARED:
        raise invalid_field("runs", f"Name 1 to {queries.MAX_COMPARED} runs by their ids.")
    rows = Run.objects.select_related("project", "experiment", "created_by")
    visible = access.visible(rows, access.actor_of(request)).in_bulk(
        [pk for pk in ids if "\0" not in pk]
    )
    return [access.found_or_404(visible.get(pk)) for pk in ids]


def _group(one: comparing.RunGroup) -> dict[str, Any]:
    return {"key": one.key, "label": one.label, "runs": [run.pk for run in one.runs]}


def _rate(rate: comparing.Rate, found: comparing.RateDifference | None) -> dict[str, Any]:
    return {
        "run": rate.run.pk,
        "name": rate.run.name,
        "evaluation": rate.evaluation.id if rate.evaluation else None,
        "value": rate.value,
        "interval": rate.interval,
        "tasks": rate.tasks,
        "difference": found and {**vars(found.interval), **_of_difference(found)},
    }


def _of_difference(found: comparing.RateDifference) -> dict[str, Any]:
    return {name: value for name, value in vars(found).items() if name != "interval"}
