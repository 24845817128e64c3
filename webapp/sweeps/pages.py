"""Pages of sweeps: the list, a new one with live validation, one with its trials."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments.frozen_spec import asked_text
from webapp.experiments.models import Run
from webapp.experiments.recipes import recipes
from webapp.pages import page_of, show, tell
from webapp.problems import RefusedError
from webapp.sweeps import form, queries, services
from webapp.sweeps.figures import HEIGHT, WIDTH, pictures
from webapp.sweeps.models import Sweep, SweepState

DEFAULT_RECIPE = "kg-search"
SHOWN = 500  # trials in the table
CONTROLS = {
    "pause": services.pause_sweep,
    "continue": services.continue_sweep,
    "stop": services.stop_sweep,
}


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    actor = access.actor_of(request)
    cursor = request.GET.get("cursor")
    rows, following = queries.list_sweeps(actor, project.pk, cursor)
    context = {"section": "runs", "rows": rows, "next": following, "cursor": cursor}
    return show(request, "sweeps/sweeps.html", context)


@page_of(Project.objects.all(), Role.EDITOR)
def new(request: HttpRequest, project: Project) -> HttpResponse:
    """From a text that Launch sent, `?clone=` a run or `?recipe=`."""
    if request.method == "POST":
        given = form.typed(request.POST)
    else:
        given = form.Typed(text=_first_text(request, project))
    refused: RefusedError | None = None
    if request.POST.get("create"):
        try:
            sweep = services.create_sweep(
                project,
                access.actor_of(request).user,
                form.base_of(given),
                services.SweepWish(
                    form.plan_of(given),
                    name=given.name,
                    experiment=given.experiment,
                    notes=given.notes,
                ),
            )
            return redirect("sweep", sweep.pk)
        except RefusedError as error:
            refused = error
    checked = _checked(given)
    if refused is not None:
        checked |= {"problem": refused, "problems": form.placed(given, refused.errors)}
    context = {
        "section": "runs",
        "form": given,
        "kinds": form.KINDS,
        "paths": form.paths_of(given.text),
        **checked,
    }
    status = refused.status if refused else 200
    return show(request, "sweeps/new.html", context, status=status)


@require_POST
@page_of(Project.objects.all(), Role.EDITOR)
def check(request: HttpRequest, project: Project) -> HttpResponse:
    """What the form comes to, while it is filled in."""
    return show(request, "sweeps/preview.html", _checked(form.typed(request.POST)))


def _checked(given: form.Typed) -> dict[str, Any]:
    found: dict[str, Any] = {"seen": None, "problem": None, "problems": []}
    if not any(row.path for row in given.fields):
        return found
    try:
        found["seen"] = services.preview(form.base_of(given), form.plan_of(given))
    except RefusedError as refused:
        found |= {"problem": refused, "problems": form.placed(given, refused.errors)}
    return found


@page_of(Sweep.objects.select_related("project", "experiment", "created_by"))
def one(request: HttpRequest, sweep: Sweep) -> HttpResponse:
    order = request.GET.get("sort", "")
    order = order if order in (queries.BY_NUMBER, queries.BY_VALUE) else queries.BY_NUMBER
    detail = queries.sweep_detail(sweep)
    trials = queries.trials_of(sweep, detail.plan, order, SHOWN)
    newest = queries.newest_values(detail.plan, trials)
    paths, best = [dimension.path for dimension in detail.plan.space], detail.best
    rows = [
        (trial, [trial.params.get(path) for path in paths], newest.get(trial.pk))
        for trial in trials
    ]
    context = {
        "section": "runs",
        "sweep": sweep,
        "detail": detail,
        "order": order,
        "paths": paths,
        "rows": rows,
        "best_params": [(path, best.params.get(path)) for path in paths] if best else [],
        "hidden": max(sum(detail.counts.values()) - SHOWN, 0),
        "pictures": pictures(detail, queries.drawn(sweep)),
        "size": (WIDTH, HEIGHT),
        "compared": ",".join(queries.compared(sweep, detail.plan)),
        "is_going": sweep.state in (SweepState.RUNNING, SweepState.PAUSED),
    }
    return show(request, "sweeps/sweep.html", context, "sweeps/sweep_body.html")


@require_POST
@page_of(Sweep.objects.select_related("project"), Role.EDITOR)
def control(request: HttpRequest, sweep: Sweep) -> HttpResponse:
    act = CONTROLS.get(request.POST.get("action", ""))
    if act is not None:
        try:
            act(sweep.pk, access.actor_of(request).user)
        except RefusedError as refused:
            tell(request, refused)
    return redirect("sweep", sweep.pk)


def _first_text(request: HttpRequest, project: Project) -> str:
    if wanted := request.GET.get("clone"):
        run = access.get(
            Run.objects.filter(project=project), wanted, access.actor_of(request), Role.EDITOR
        )
        return asked_text(run)
    known = {one.name: one.text for one in recipes()}
    return known.get(request.GET.get("recipe", ""), known.get(DEFAULT_RECIPE, ""))
