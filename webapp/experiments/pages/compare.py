"""Compare: curves of several runs in one chart, completion rates, tasks that flip, configs.

Parts load when they come into view, each by the address of the page with `part`; opened alone, such
an address is a page of that part. All state is in the URL.
"""

import math
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext, gettext_lazy

from webapp.accounts import access
from webapp.accounts.models import Project
from webapp.accounts.saved_views import default_view
from webapp.experiments import comparing, queries
from webapp.experiments.models import Run
from webapp.experiments.pages.compare_charts import chart_names, chart_page
from webapp.experiments.parallel import axes
from webapp.experiments.run_groups import VARIANT
from webapp.monitoring.headline import HEADLINE
from webapp.monitoring.models import Series
from webapp.pages import is_fragment, page_of, show
from webapp.problems import RefusedError
from webapp.reviews.models import Trajectory
from webapp.templating import line_styles, series_class

CHOICES = 30
OF_SPECS = ("completion", "tasks", "parallel", "config")  # parts that look into the specs
MOST_ROWS = 300  # of config differences
OPEN_ROWS = 25  # with more, the sections of the config are closed
MOST_FLIPS = 100  # shown of each direction
MOST_FOUND = 40
CARRIED = ("group", "metrics", "x", "smooth", "log", "axes", "colour", "view")  # by forms
PARTS = {
    "completion": gettext_lazy("Completion rate"),
    "charts": gettext_lazy("Curves"),
    "tasks": gettext_lazy("Tasks that one solves and the other does not"),
    "parallel": gettext_lazy("Parallel coordinates"),
    "config": gettext_lazy("Config"),
    "values": gettext_lazy("Newest values"),
}


@page_of(Project.objects.all())
def compare(request: HttpRequest, project: Project) -> HttpResponse:
    """`?runs=a,b`: the first is what the others are measured against; `group`: see run_groups."""
    if opened := default_view(request, project, "compare"):
        return opened
    runs, missing = _runs(request)
    part = request.GET.get("part", "")
    find = request.GET.get("find")
    if find is not None and is_fragment(request):
        found = {"found": _find_metrics(runs, find)}
        return show(request, "experiments/compare_find.html", found)
    context: dict[str, Any] = {
        "section": "compare",
        "runs": runs,
        "ids": ",".join(run.pk for run in runs),
        "missing": missing,
        "problem": "",
        "group": request.GET.get("group", ""),
        "part": part if part in PARTS else "",
        "carried": CARRIED,
        "parts": [(name, PARTS[name]) for name in PARTS if part in ("", name)],
    }
    try:
        if len(runs) > queries.MAX_COMPARED:
            raise RefusedError(
                gettext("At most %(most)s runs can be compared, not %(n)s.")
                % {"most": queries.MAX_COMPARED, "n": len(runs)}
            )
        if len(runs) > 1:
            groups = comparing.grouped(runs, context["group"]) if context["group"] else []
            context["groups"] = groups
            if part in RENDERED:
                context |= RENDERED[part](request, runs, groups)
            if part in ("", "charts"):
                context["charts"] = chart_page(request, runs, groups)
    except RefusedError as refused:
        context["problem"] = refused.detail
    if is_fragment(request) and part in RENDERED:
        return show(request, f"experiments/compare_{part}.html", context)
    shown = Run.objects.filter(project=project, archived_at=None, full_spec__isnull=True)
    recent = shown.order_by("-created_at")
    context |= {
        "recent": [run for run in recent.only("name")[:CHOICES] if run not in runs],
        "without": [
            (run, ",".join(other.pk for other in runs if other is not run)) for run in runs
        ],
        "groupings": [(VARIANT, gettext("config without the seed")), ("seed", gettext("seed"))],
    }
    return show(request, "experiments/compare.html", context)


def _runs(request: HttpRequest) -> tuple[list[Run], int]:
    """Those of the address that the person may see, and how many others it names."""
    wanted = [pk for pk in request.GET.get("runs", "").split(",") if pk]
    wanted += [pk for pk in request.GET.getlist("add") if pk]
    wanted = [pk for pk in dict.fromkeys(wanted) if "\0" not in pk]
    rows = access.visible(Run.objects.select_related("experiment"), access.actor_of(request))
    if request.GET.get("part") not in OF_SPECS and request.GET.get("group") != VARIANT:
        rows = rows.defer("spec")  # up to a megabyte each
    found = rows.in_bulk(wanted[: 4 * queries.MAX_COMPARED])
    runs = [found[pk] for pk in wanted if pk in found]
    line_styles(runs)
    return runs, len(wanted) - len(runs)


def _completion(
    request: HttpRequest, runs: list[Run], groups: list[comparing.RunGroup]
) -> dict[str, Any]:
    found = comparing.rates(runs)
    rows = list(zip(found, comparing.against_base(found), strict=True))
    methods = {difference.method for _, difference in rows if difference}
    return {
        "rates": rows,
        "group_rates": comparing.group_rates(groups, found) if groups else [],
        "is_paired": comparing.PAIRED in methods,
        "is_independent": comparing.INDEPENDENT in methods,
    }


def _tasks(
    request: HttpRequest, runs: list[Run], groups: list[comparing.RunGroup]
) -> dict[str, Any]:
    """`a` and `b` choose the two runs, `category` narrows the tasks."""
    by_id = {run.pk: run for run in runs}
    first = by_id.get(request.GET.get("a", "")) or runs[0]
    second = by_id.get(request.GET.get("b", "")) or next(run for run in runs if run != first)
    context: dict[str, Any] = {
        "first": first,
        "second": second,
        "category": request.GET.get("category", ""),
    }
    if first == second:
        return context | {"tasks_problem": gettext("Choose two different runs.")}
    try:
        found = comparing.flips(first, second, context["category"])
    except RefusedError as refused:
        return context | {"tasks_problem": refused.detail}
    compared = found.comparison
    shown = [*compared.lost[:MOST_FLIPS], *compared.gained[:MOST_FLIPS]]
    wanted = [pk for flip in shown for pk in (flip.before_trajectory, flip.after_trajectory)]
    rows = Trajectory.objects.filter(pk__in=wanted, run__in=[first.pk, second.pk])
    stored = set(rows.values_list("pk", flat=True))
    return context | {
        "found": found,
        "compared": compared,
        "stored": stored,
        "directions": [
            (first, second, compared.lost[:MOST_FLIPS], len(compared.lost)),
            (second, first, compared.gained[:MOST_FLIPS], len(compared.gained)),
        ],
    }


def _parallel(
    request: HttpRequest, runs: list[Run], groups: list[comparing.RunGroup]
) -> dict[str, Any]:
    made = axes(runs, queries.config_differences([run.spec for run in runs]))
    keys = [{"id": run.pk, "name": run.name, "class": series_class(run)} for run in runs]
    return {"parallel": {"axes": [vars(axis) for axis in made], "runs": keys}}


def _config(
    request: HttpRequest, runs: list[Run], groups: list[comparing.RunGroup]
) -> dict[str, Any]:
    """Differences by section of the spec; `field` narrows them."""
    wanted = request.GET.get("field", "").lower()
    found = queries.config_differences([run.spec for run in runs])
    matching = [row for row in found if wanted in row.path.lower()]
    sections: dict[str, list[queries.Difference]] = {}
    for row in matching[:MOST_ROWS]:
        parts = row.path.split(".")
        is_stage = parts[0] == "stages" and len(parts) > 2
        sections.setdefault(".".join(parts[: 2 if is_stage else 1]), []).append(row)
    return {
        "field": request.GET.get("field", ""),
        "total": len(found),
        "sections": [
            (name, rows, len(matching) <= OPEN_ROWS or len(sections) == 1)
            for name, rows in sections.items()
        ],
        "more": max(0, len(matching) - MOST_ROWS),
    }


def _values(
    request: HttpRequest, runs: list[Run], groups: list[comparing.RunGroup]
) -> dict[str, Any]:
    """Newest values of the headline and of the metrics that were picked."""
    return {"metrics": _metric_rows(queries.newest_by_metric(runs, chart_names(request)))}


RENDERED = {
    "completion": _completion,
    "tasks": _tasks,
    "parallel": _parallel,
    "config": _config,
    "values": _values,
}


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


def _find_metrics(runs: list[Run], text: str) -> list[str]:
    """Metrics of the runs whose name has every word."""
    found = Series.objects.filter(run__in=[run.pk for run in runs])
    for word in text.replace("\0", "").split():
        found = found.filter(name__icontains=word)
    names = found.order_by("name").values_list("name", flat=True).distinct()
    return list(names[:MOST_FOUND])
