"""Datasets: versions, upload with every wrong row named, a browser of samples."""

import json
from typing import Any

from django.contrib import messages
from django.db.models import Count, Max, OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import services
from webapp.experiments.models import Dataset, DatasetVersion, StageDataset
from webapp.experiments.queries import rows_of
from webapp.pages import page_of, show, tell
from webapp.problems import RefusedError

SAMPLES = 20
LEARNERS = 50
KINDS = ("tasks", "trajectories", "pairs", "step_labels")


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    newest = DatasetVersion.objects.filter(dataset=OuterRef("pk")).order_by("-number")
    found = (
        Dataset.objects.filter(project=project)
        .annotate(
            version_count=Count("versions"),
            newest=Max("versions__created_at"),
            newest_rows=Subquery(newest.values("rows")[:1]),
        )
        .order_by("name")
    )
    context = {"section": "datasets", "datasets": found, "kinds": KINDS}
    return show(request, "experiments/datasets.html", context)


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


def _context(request: HttpRequest, dataset: Dataset) -> dict[str, Any]:
    versions = list(dataset.versions.select_related("created_by").order_by("-number"))
    wanted = request.GET.get("version")
    shown = next(
        (v for v in versions if str(v.number) == wanted), versions[0] if versions else None
    )
    given = request.GET.get("from", "0")
    start = min(int(given), shown.rows - 1) if shown and given.isdecimal() else 0
    samples = rows_of(shown, start, SAMPLES) if shown else []
    return {
        "section": "datasets",
        "dataset": dataset,
        "versions": versions,
        "shown": shown,
        "learners": StageDataset.objects.filter(version__dataset=dataset)
        .select_related("run", "version")
        .order_by("-run__created_at", "stage")[:LEARNERS],
        "samples": [
            (start + index, _headline(row), json.dumps(row, indent=2, ensure_ascii=False))
            for index, row in enumerate(samples)
        ],
        "start": start,
        "previous": max(0, start - SAMPLES) if start else None,
        "following": start + SAMPLES if shown and start + SAMPLES < shown.rows else None,
    }


def _headline(row: dict[str, Any]) -> str:
    for name in ("prompt", "question", "trajectory", "id"):
        if isinstance(row.get(name), str):
            return str(row[name])[:300]
    return json.dumps(row, ensure_ascii=False)[:300]
