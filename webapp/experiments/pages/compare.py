"""Compare: curves of several runs in one chart, what their configs say differently, the results."""

import math
from typing import Any

from django.http import HttpRequest, HttpResponse

from engine.evaluation.intervals import Interval, difference, wilson
from webapp.accounts import access
from webapp.accounts.models import Project
from webapp.accounts.saved_views import default_view
from webapp.experiments import queries
from webapp.experiments.models import Run
from webapp.monitoring.headline import HEADLINE
from webapp.monitoring.overview import compare_data
from webapp.pages import page_of, show
from webapp.problems import RefusedError
from webapp.templating import line_styles

CHOICES = 30
RATE = HEADLINE["success"]
LOW, HIGH = f"{RATE}_low", f"{RATE}_high"
TASKS = "eval/tasks"  # how many tasks the evaluation had


@page_of(Project.objects.all())
def compare(request: HttpRequest, project: Project) -> HttpResponse:
    """`?runs=a,b`: the first is what the others are measured against."""
    if opened := default_view(request, project, "compare"):
        return opened
    actor = access.actor_of(request)
    wanted = [pk for pk in request.GET.get("runs", "").split(",") if pk]
    wanted += [pk for pk in request.GET.getlist("add") if pk]
    wanted = list(dict.fromkeys(wanted))
    found = access.visible(Run.objects.select_related("experiment"), actor).in_bulk(wanted)
    runs = [found[pk] for pk in wanted if pk in found]
    line_styles(runs)
    missing = len(wanted) - len(runs)
    recent = project.runs.filter(archived_at=None).order_by("-created_at")
    problem, comparison = "", None
    try:
        comparison = queries.compare(runs) if runs else None
    except RefusedError as refused:
        problem = refused.detail
    context: dict[str, Any] = {
        "section": "compare",
        "runs": runs,
        "ids": ",".join(run.pk for run in runs),
        "missing": missing,
        "problem": problem,
        "recent": [run for run in recent[:CHOICES] if run.pk not in found],
        "without": [
            (run, ",".join(other.pk for other in runs if other is not run)) for run in runs
        ],
    }
    if comparison and len(runs) > 1:
        context |= {
            "differences": comparison.differences,
            "metrics": _metric_rows(comparison.metrics),
            "completion": _completion(runs, comparison.metrics),
            "charts": compare_data(comparison),
        }
    return show(request, "experiments/compare.html", context)


def _metric_rows(metrics: dict[str, list[float | None]]) -> list[dict[str, Any]]:
    """Newest values, the headline metrics first, each with its difference from the first run."""
    head = [name for name in HEADLINE.values() if name in metrics]
    rows = []
    for name in [*head, *(name for name in metrics if name not in head)]:
        values = metrics[name]
        base = values[0]
        cells = [
            (value, _minus(value, base) if index else None) for index, value in enumerate(values)
        ]
        rows.append({"name": name, "cells": cells, "is_head": name in head})
    return rows


def _minus(value: float | None, base: float | None) -> float | None:
    if value is None or base is None or not math.isfinite(value) or not math.isfinite(base):
        return None
    return value - base


def _completion(runs: list[Run], metrics: dict[str, list[float | None]]) -> list[dict[str, Any]]:
    """Completion rate of each run's last evaluation with its 95% interval, where it is known.

    The difference's interval treats the evaluations as independent samples (Newcombe's method 10);
    the same tasks in both allow a narrower one, which a run's page on evaluation gives.
    """
    rows = []
    base: Interval | None = None
    for index, run in enumerate(runs):
        last = {name: values[index] for name, values in metrics.items()}
        found = _interval(last)
        row: dict[str, Any] = {"run": run, "rate": run.headline.get(RATE), "interval": found}
        row["tasks"] = last.get(TASKS)
        if index and found and base:
            row["difference"] = difference(found, base)
        if index == 0:
            base = found
        rows.append(row)
    return rows


def _interval(last: dict[str, float | None]) -> Interval | None:
    """As the evaluation reported it, else Wilson's from its number of tasks, if that is known."""
    told = {name: last.get(name) for name in (RATE, LOW, HIGH, TASKS)}
    given = {k: value for k, value in told.items() if value is not None and math.isfinite(value)}
    if RATE not in given:
        return None
    if LOW in given and HIGH in given:
        return Interval(given[RATE], given[LOW], given[HIGH])
    if not given.get(TASKS):
        return None
    return wilson(round(given[RATE] * given[TASKS]), int(given[TASKS]))
