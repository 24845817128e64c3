"""Datasets: versions, upload with every wrong row named, a browser of samples."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import lists, services
from webapp.experiments.models import Dataset, DatasetVersion
from webapp.experiments.provenance import learners_of, provenance_of
from webapp.experiments.queries import rows_of
from webapp.experiments.stored import learner_of
from webapp.pages import page_of, show, tell, whole_number
from webapp.problems import RefusedError
from webapp.reviews.models import Trajectory

SAMPLES = 20
MOST_TEXT = 100_000  # characters of a row
KINDS = ("tasks", "trajectories", "pairs", "step_labels")


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    """`?q=` is a part of the name, `?kind=` one of the kinds."""
    q, kind, cursor = (request.GET.get(name, "") for name in ("q", "kind", "cursor"))
    actor = access.actor_of(request)
    context = {
        "section": "datasets",
        "page": lists.list_datasets(actor, project.pk, q, kind, cursor),
        "kinds": KINDS,
        "q": q,
        "kind": kind,
        "cursor": cursor,
    }
    return show(request, "experiments/datasets.html", context, "experiments/datasets_table.html")


@require_POST
@page_of(Project.objects.all(), Role.EDITOR)
def new(request: HttpRequest, project: Project) -> HttpResponse:
    try:
        made = services.create_dataset(
            project,
            access.actor_of(request).user,
            request.POST.get("name", ""),
            request.POST.get("kind", ""),
        )
    except RefusedError as refused:
        tell(request, refused)
        return redirect("datasets", project.pk)
    return redirect("dataset", made.pk)


@page_of(Dataset.objects.select_related("project"))
def one(request: HttpRequest, dataset: Dataset) -> HttpResponse:
    return show(request, "experiments/dataset.html", _context(request, dataset))


@require_POST
@page_of(Dataset.objects.select_related("project"), Role.EDITOR)
def upload(request: HttpRequest, dataset: Dataset) -> HttpResponse:
    file = request.FILES.get("file")
    try:
        if file is None:
            raise RefusedError(_("Choose a file of JSON lines or Parquet first."))
        user = access.actor_of(request).user
        version = services.upload_version(dataset, user, file, request.POST.get("note", ""))
    except RefusedError as refused:
        context = _context(request, dataset) | {"refused": refused}
        return show(request, "experiments/dataset.html", context, status=refused.status)
    messages.success(
        request,
        _("Version %(number)s holds %(rows)s rows.")
        % {"number": version.number, "rows": version.rows},
    )
    return redirect("dataset", dataset.pk)


@require_POST
@page_of(Dataset.objects.select_related("project"), Role.ADMIN)
def delete(request: HttpRequest, dataset: Dataset) -> HttpResponse:
    """The version whose number the form holds; the dataset itself where it holds none."""
    user, number = access.actor_of(request).user, request.POST.get("number", "")
    try:
        if not number:
            services.delete_dataset(dataset, user)
            messages.success(request, _("%(name)s is deleted.") % {"name": dataset.name})
            return redirect("datasets", dataset.project_id)
        wanted = dataset.versions.filter(number=whole_number("number", number))
        version = access.found_or_404(wanted.select_related("dataset__project").first())
        services.delete_dataset_version(version, user)
        messages.success(request, _("Version %(n)s is deleted.") % {"n": number})
    except RefusedError as refused:
        tell(request, refused)
    return redirect("dataset", dataset.pk)


@dataclass(frozen=True)
class Sample:
    number: int
    line: str
    text: str
    trajectory: str  # its id, where its replay is there; else empty


def _context(request: HttpRequest, dataset: Dataset) -> dict[str, Any]:
    """`?version=` is the number of the one that is shown, `?from=` its first row on the page."""
    rows = dataset.versions.select_related("created_by", "dataset").order_by("-number")
    versions = list(rows.annotate(learner_count=Count("stage_datasets__run", distinct=True)))
    wanted = request.GET.get("version")
    shown = next(
        (v for v in versions if str(v.number) == wanted), versions[0] if versions else None
    )
    given = request.GET.get("from", "0")
    start = max(0, min(int(given), shown.rows - 1)) if shown and given.isdecimal() else 0
    return {
        "section": "datasets",
        "dataset": dataset,
        "versions": versions,
        "shown": shown,
        "provenance": provenance_of([shown])[shown.pk] if shown else None,
        "learners": learners_of(shown) if shown else [],
        "learns_as": learner_of(shown) if shown else "",
        "categories": _bars(shown.categories.items()) if shown else [],
        "difficulties": [
            {"low": low, "high": high, "counts": [rows]}
            for low, high, rows in (shown.difficulties if shown else ())
        ],
        "samples": _samples(dataset, shown, start) if shown else [],
        "start": start,
        "previous": max(0, start - SAMPLES) if start else None,
        "following": start + SAMPLES if shown and start + SAMPLES < shown.rows else None,
    }


def _samples(dataset: Dataset, version: DatasetVersion, start: int) -> list[Sample] | None:
    """None where the rows are missing from storage."""
    try:
        rows = rows_of(version, start, SAMPLES)
    except FileNotFoundError:
        return None
    named = {_trajectory_of(row) for row in rows} - {""}
    stored = Trajectory.objects.filter(pk__in=named, project=dataset.project_id)
    replays = set(stored.values_list("pk", flat=True))
    return [
        Sample(
            start + index,
            _headline(row),
            json.dumps(row, indent=2, ensure_ascii=False)[:MOST_TEXT],
            name if (name := _trajectory_of(row)) in replays else "",
        )
        for index, row in enumerate(rows)
    ]


def _trajectory_of(row: dict[str, Any]) -> str:
    for name in ("trajectory", "id"):
        if isinstance(value := row.get(name), str) and len(value) <= 40 and "\0" not in value:
            return value
    return ""


def _headline(row: dict[str, Any]) -> str:
    for name in ("prompt", "question", "trajectory", "id"):
        if isinstance(row.get(name), str):
            return str(row[name])[:300]
    return json.dumps(row, ensure_ascii=False)[:300]


def _bars(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int, float]]:
    """(name, rows, share of the longest bar)."""
    found = list(counts)
    most = max((count for _, count in found), default=0)
    return [(name, count, 100 * count / most) for name, count in found]
