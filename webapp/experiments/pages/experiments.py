"""Experiments: a question with its notes, its pinned baseline and the runs that answer it."""

from django.contrib import messages
from django.db.models import Count, Max, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import services
from webapp.experiments.models import ACTIVE_STATES, Experiment
from webapp.pages import page_of, show, tell
from webapp.problems import RefusedError

RUNS_SHOWN = 100


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    if request.method == "POST":
        return _create(request, project)
    found = (
        Experiment.objects.filter(project=project)
        .select_related("baseline", "created_by")
        .annotate(
            run_count=Count("runs", filter=Q(runs__archived_at=None)),
            active_count=Count("runs", filter=Q(runs__state__in=ACTIVE_STATES)),
            newest=Max("runs__created_at"),
        )
        .order_by("-newest", "-created_at")
    )
    context = {"section": "experiments", "experiments": found}
    return show(request, "experiments/experiments.html", context)


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


@page_of(Experiment.objects.select_related("project", "baseline"))
def one(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    runs = experiment.runs.filter(archived_at=None).order_by("-created_at", "-pk")
    context = {
        "section": "experiments",
        "experiment": experiment,
        "runs": list(runs.select_related("created_by")[:RUNS_SHOWN]),
        "run_count": runs.count(),
    }
    return show(request, "experiments/experiment.html", context)


@require_POST
@page_of(Experiment.objects.select_related("project"), Role.EDITOR)
def edit(request: HttpRequest, experiment: Experiment) -> HttpResponse:
    """Name and notes, or the baseline: what the form holds."""
    user = access.actor_of(request).user
    try:
        if "baseline" in request.POST:
            wanted = request.POST["baseline"]
            baseline = experiment.runs.filter(pk=wanted).first() if wanted else None
            services.edit_experiment(experiment.pk, user, baseline=baseline)
        else:
            services.edit_experiment(
                experiment.pk,
                user,
                name=request.POST.get("name", experiment.name),
                notes=request.POST.get("notes", experiment.notes),
            )
        messages.success(request, _("Saved."))
    except RefusedError as refused:
        tell(request, refused)
    return redirect("experiment", experiment.pk)
