"""What the charts of Compare are given with the page; their curves come when they are in view."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.http import HttpRequest

from webapp.experiments.comparing import RunGroup
from webapp.experiments.models import Run
from webapp.monitoring.headline import HEADLINE
from webapp.monitoring.many_curves import clocks_of, series_named
from webapp.monitoring.overview import CURRICULUM_PANELS, PANELS, Panel, panel_row, run_row
from webapp.monitoring.queries import series_row
from webapp.templating import SERIES_COLOURS, run_colour

MOST_PICKED = 30
CURATED = (*PANELS, *CURRICULUM_PANELS)


def picked_metrics(request: HttpRequest) -> list[str]:
    """That the address adds to the curated ones."""
    given = dict.fromkeys(request.GET.get("metrics", "").split(","))
    return [name for name in given if name and len(name) <= 120 and "\0" not in name][:MOST_PICKED]


def chart_names(request: HttpRequest) -> list[str]:
    """Picked metrics, those of the curated charts, and the headline."""
    curated = [name for panel in CURATED for name in panel.metrics]
    return list(dict.fromkeys([*picked_metrics(request), *curated, *HEADLINE.values()]))


def chart_page(
    request: HttpRequest, runs: Sequence[Run], groups: Sequence[RunGroup]
) -> dict[str, Any]:
    """One panel a metric: the picked ones, then of the curated those that some run has."""
    rows = series_named(runs, chart_names(request))
    names = {row.name for row in rows}
    singles = [
        replace(
            panel, id=name, metrics=(name,), title=_title(panel, name), labels=(), low="", high=""
        )
        for panel in CURATED
        for name in panel.metrics
        if name in names
    ]
    known = {panel.id for panel in singles}
    picked = picked_metrics(request)
    extra = [Panel(name, name, (name,), "") for name in picked if name in names - known]
    first = [panel for panel in singles if panel.id in picked]
    panels = [*extra, *first, *(panel for panel in singles if panel not in first)]
    shown: dict[str, Any] = {"panels": [panel_row(panel) for panel in panels]}
    if groups:
        return shown | {
            "group": request.GET.get("group", ""),
            "of": [run.pk for run in runs],
            "runs": [_group(place, group) for place, group in enumerate(groups)],
            "series": {},
            "clocks": {},
        }
    series: dict[str, list[dict[str, Any]]] = {run.pk: [] for run in runs}
    for row in rows:
        series[row.run_id].append(series_row(row))
    return shown | {
        "runs": [run_row(run) for run in runs],
        "series": series,
        "clocks": clocks_of(runs),
    }


def _group(place: int, group: RunGroup) -> dict[str, Any]:
    """A group as the charts take a run. It keeps the colour of its first run, which is told from an
    earlier group's of the same colour by its line."""
    first = group.runs[0]
    return {
        "id": str(place),
        "name": group.label,
        "colour": run_colour(first) % SERIES_COLOURS,
        "style": getattr(first, "line_style", "solid"),
        "cursor": 0,
        "active": False,
    }


def _title(panel: Panel, name: str) -> str:
    """Of one metric's own chart: "Loss, cold start"."""
    label = panel.labels[panel.metrics.index(name)] if panel.labels else ""
    return f"{panel.title}, {label}" if label else str(panel.title)
