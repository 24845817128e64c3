"""Experiments: a question with its notes, its pinned baseline and the runs that answer it."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import edits, lists, services
from webapp.experiments.models import Experiment, Run
from webapp.experiments.queries import Difference, flat_spec
from webapp.experiments.services.experiments import lock_experiment
from webapp.monitoring.headline import HEADLINE
from webapp.monitoring.sparks import sparks
from webapp.pages import page_of, show, tell
from webapp.problems import RefusedError

RUNS_SHOWN = 100
CURVE = HEADLINE["success"]
NAMED = ("name", "description", "tags")  # say nothing of what a run does
MOST_CHANGES = 3  # fields named beside a run
MOST_FIELDS = 60_000  # of all configs on the page
MAX_PREVIEW = 100_000
Curves = dict[tuple[str, str], list[float | None]]


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    """`?q=` is a part of the name, `?archived=1` shows those that were put away."""
    if request.method == "POST":
        return _create(request, project)
    archived = bool(request.GET.get("archived"))
    q, cursor = request.GET.get("q", ""), request.GET.get("cursor")
    actor = access.actor_of(request)
    context = {
        "section": "experiments",
        "page": lists.list_experiments(actor, project.pk, q, archived, cursor),
        "q": q,
        "cursor": cursor,
        "archived": archived,
        "archived_count": project.experiments.exclude(archived_at=None).count(),
    }
    template = "experiments/experiments.html"
    return show(request, template, context, "experiments/experiments_table.html")


def _create(request: HttpRequest, project: Project) -> HttpResponse:
    access.require(access.actor_of(request), project.pk, Role.EDITOR)
    try:
        made = services.create_experiment(
            project, access.actor_of(request).user, request.POST.get("name", "")
        )
    except RefusedError as refused:
        tell(request, refused)
        return redirect("experiments", project.pk)
    return redirect("experiment", made.pk)


@dataclass(frozen=True)
class Row:
    """A run of an experiment, and what it is beside the baseline."""

    run: Run
    spark: list[float | None]
    gain: float | None  # of the completion rate, in shares; None: not both are known
    changes: list[Difference] | None  # the first few; None: not looked for
    more: int


@page_of(Experiment.objects.select_related("project", "baseline"))
def one(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    runs = experiment.runs.filter(archived_at=None, full_spec__isnull=True).order_by(
        "-created_at", "-pk"
    )
    shown = list(runs.select_related("created_by")[:RUNS_SHOWN])
    curves = sparks([run.pk for run in shown], [CURVE])
    context = {
        "section": "experiments",
        "experiment": experiment,
        "seen": edits.seen_experiment(experiment),
        "runs": shown,
        "rows": _rows(shown, experiment.baseline, curves),
        "curve": CURVE,
        "run_count": runs.count(),
        "all_runs": experiment.runs.count(),
    }
    return show(request, "experiments/experiment.html", context)


def _rows(runs: list[Run], baseline: Run | None, curves: Curves) -> list[Row]:
    """Differences are looked for in so many fields at most: a config may have ten thousands."""
    base = _fields(baseline) if baseline else {}
    left = MOST_FIELDS
    found = []
    for run in runs:
        spark = curves.get((run.pk, CURVE), [])
        if baseline is None or run.pk == baseline.pk:
            found.append(Row(run, spark, None, [], 0))
            continue
        ours = _fields(run) if left > 0 else None
        left -= len(ours or ())
        changes = _changes(base, ours) if ours is not None else None
        more = max(0, len(changes or ()) - MOST_CHANGES)
        first = None if changes is None else changes[:MOST_CHANGES]
        found.append(Row(run, spark, _gain(run, baseline), first, more))
    return found


def _fields(run: Run) -> dict[str, Any]:
    return dict(flat_spec({key: value for key, value in run.spec.items() if key not in NAMED}))


def _changes(base: dict[str, Any], ours: dict[str, Any]) -> list[Difference]:
    paths = [path for path in sorted(base.keys() | ours.keys()) if base.get(path) != ours.get(path)]
    return [Difference(path, [base.get(path), ours.get(path)]) for path in paths]


def _gain(run: Run, baseline: Run) -> float | None:
    ours, theirs = run.headline.get(CURVE), baseline.headline.get(CURVE)
    return ours - theirs if ours is not None and theirs is not None else None


@require_POST
@page_of(Experiment.objects.select_related("project"), Role.EDITOR)
def edit(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    """Name and notes, or the baseline: what the form holds. With `seen`, the tag of what its
    writer saw, a change that was made meanwhile is shown instead of being written over."""
    try:
        with transaction.atomic():
            locked = lock_experiment(experiment.pk)
            if "baseline" in request.POST:
                _pin(request, locked)
            elif request.POST.get("seen") not in (None, edits.seen_experiment(locked)):
                return _changed_meanwhile(request, locked)
            else:
                services.edit_experiment(
                    locked.pk,
                    access.actor_of(request).user,
                    name=request.POST.get("name", locked.name),
                    notes=_lines(request.POST.get("notes", locked.notes)),
                )
        messages.success(request, _("Saved."))
    except RefusedError as refused:
        tell(request, refused)
    return redirect("experiment", experiment.pk)


def _pin(request: HttpRequest, experiment: Experiment) -> None:
    wanted = request.POST["baseline"]
    baseline = experiment.runs.filter(pk=wanted).first() if wanted else None
    user = access.actor_of(request).user
    services.edit_experiment(experiment.pk, user, baseline=baseline)


def _changed_meanwhile(request: HttpRequest, now: Experiment) -> HttpResponse:
    yours = {
        "name": request.POST.get("name", now.name),
        "notes": _lines(request.POST.get("notes", now.notes)),
    }
    context: dict[str, Any] = edits.conflict_context(
        now,
        "experiment.edit",
        edits.seen_experiment(now),
        [
            edits.Field("name", _("Name"), now.name, yours["name"]),
            edits.Field("notes", _("Notes"), now.notes, yours["notes"], is_long=True),
        ],
        reverse("experiment", args=[now.pk]),
    )
    context["section"] = "experiments"
    return show(request, "experiments/edit_conflict.html", context, status=409)


def _lines(text: str) -> str:
    """Browsers send lines with CRLF."""
    return text.replace("\r\n", "\n")


@require_POST
@page_of(Experiment.objects.select_related("project"), Role.EDITOR)
def archive(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    """`archived` is 1, or empty to put it back."""
    archived = bool(request.POST.get("archived"))
    try:
        services.archive_experiment(experiment.pk, access.actor_of(request).user, archived)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("experiment", experiment.pk)
    messages.success(request, _("Archived.") if archived else _("It is among the others again."))
    return redirect("experiment", experiment.pk)


@require_POST
@page_of(Experiment.objects.select_related("project"), Role.EDITOR)
def delete(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    try:
        services.delete_experiment(experiment.pk, access.actor_of(request).user)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("experiment", experiment.pk)
    messages.success(request, _("%(name)s is deleted.") % {"name": experiment.name})
    return redirect("experiments", experiment.project_id)


@require_POST
@login_required
def preview(request: HttpRequest) -> HttpResponse:
    """What Markdown looks like, before it is saved."""
    text = request.POST.get("notes", "")[:MAX_PREVIEW]
    return render(request, "components/preview.html", {"text": text})
