"""Launch: a recipe, a preset or a run to clone, edited as YAML and as a form, then launched."""

import json
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from engine.planner import DEVICES
from engine.spec import ExperimentSpec, SpecProblem, load_spec
from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import services, spec_text
from webapp.experiments.models import Checkpoint, Experiment, Preset, Run
from webapp.experiments.planning import planned
from webapp.experiments.queries import config_differences
from webapp.experiments.queries import spec_text as text_of
from webapp.experiments.recipes import Recipe, recipe, recipes
from webapp.experiments.services import Launch
from webapp.pages import page_of, show, whole_number
from webapp.problems import RefusedError

MAX_TEXT = 200_000
DEFAULT_RECIPE = "kg-search"


@page_of(Project.objects.all(), Role.EDITOR)
def launch(request: HttpRequest, project: Project) -> HttpResponse:
    """`?recipe=`, `?preset=`, `?clone=` or `?checkpoint=` says what to start from."""
    checkpoint = _checkpoint(request, project)
    parent = checkpoint.run if checkpoint else _parent(request, project)
    values = {"text": "", "experiment": "", "name": "", "notes": "", "priority": ""}
    refused: RefusedError | None = None
    if request.method == "POST":
        values |= {key: request.POST.get(key, "") for key in values}
        try:
            run = _launch(request, project, parent, checkpoint, values)
            return redirect("run", run.pk)
        except RefusedError as error:
            refused = error
    chosen = _chosen(request, project, parent)
    if request.method != "POST":
        values["text"] = chosen["text"]
        values["experiment"] = parent.experiment.name if parent else ""
    context = {
        "section": "launch",
        "recipes": _recipes(),
        "presets": project.presets.order_by("name"),
        "chosen": chosen,
        "parent": parent,
        "checkpoint": checkpoint,
        "values": values,
        "refused": refused,
        "schema": ExperimentSpec.model_json_schema(),
        "devices": [f"8x{device.name}" for device in DEVICES.values()],
        "experiments": Experiment.objects.filter(project=project).order_by("-created_at")[:100],
    }
    status = refused.status if refused else 200
    return show(request, "experiments/launch.html", context, status=status)


def _recipes() -> list[Recipe]:
    return sorted(recipes(), key=lambda item: (item.name != DEFAULT_RECIPE, item.name))


def _parent(request: HttpRequest, project: Project) -> Run | None:
    wanted = request.POST.get("parent") or request.GET.get("clone")
    if not wanted:
        return None
    return Run.objects.filter(project=project, pk=wanted).select_related("experiment").first()


def _checkpoint(request: HttpRequest, project: Project) -> Checkpoint | None:
    """That the run shall start from. Raises Http404 where it is named and not there."""
    wanted = request.POST.get("checkpoint") or request.GET.get("checkpoint")
    if not wanted:
        return None
    rows = Checkpoint.objects.filter(run__project=project)
    rows = rows.select_related("run__project", "run__experiment")
    return access.get(rows, wanted, access.actor_of(request))


def _chosen(request: HttpRequest, project: Project, parent: Run | None) -> dict[str, str]:
    if parent is not None:
        return {"kind": "clone", "name": parent.pk, "text": text_of(parent)}
    if preset := Preset.objects.filter(project=project, pk=request.GET.get("preset", "")).first():
        return {"kind": "preset", "name": preset.pk, "text": preset.text}
    names = [item.name for item in _recipes()]
    wanted = request.GET.get("recipe") or (names[0] if names else "")
    text = recipe(wanted).text if wanted in names else "name: my-run\nstages: []\n"
    return {"kind": "recipe", "name": wanted, "text": text}


def _launch(
    request: HttpRequest,
    project: Project,
    parent: Run | None,
    checkpoint: Checkpoint | None,
    values: dict[str, str],
) -> Run:
    user = access.actor_of(request).user
    if request.POST.get("save_as"):
        services.save_preset(project, user, request.POST["save_as"], values["text"])
        messages.success(request, _("The preset was saved."))
    return services.launch_run(
        project,
        user,
        services.check_spec(values["text"]),
        Launch(
            experiment=values["experiment"],
            name=values["name"],
            notes=values["notes"],
            parent=parent,
            checkpoint=checkpoint,
            priority=whole_number("priority", values["priority"] or "0"),
        ),
    )


@require_POST
@page_of(Project.objects.all(), Role.EDITOR)
def check(request: HttpRequest, project: Project) -> HttpResponse:
    """For the editor: {text, change?: {path, value?}, parent?, checkpoint?, devices?} -> the text
    with the change made, what it says as data, what is wrong with it and where, what its run
    takes, what fits the devices, and how it differs from its parent.
    """
    try:
        given = json.loads(request.body)
        text, change = str(given["text"]), given.get("change")
    except (ValueError, KeyError, TypeError, AttributeError):
        return JsonResponse({"detail": "Expected JSON with a text."}, status=400)
    if len(text) > MAX_TEXT:
        return JsonResponse({"detail": "A spec has at most 200,000 characters."}, status=413)
    if change:
        text = _changed(text, change)
    spec, problems = load_spec(text)
    lines = spec_text.lines_of(text)
    parent = Run.objects.filter(project=project, pk=given.get("parent") or "").first()
    if spec is not None and given.get("checkpoint") and parent is not None:
        unfit = services.fork_problems(spec, parent)
        problems = [SpecProblem(one.path, one.message) for one in unfit]
    differences = []
    if spec is not None and parent is not None:
        rows = config_differences([parent.spec, spec.model_dump(mode="json")])
        differences = [{"path": row.path, "values": row.values} for row in rows]
    return JsonResponse(
        {
            "text": text,
            "data": spec_text.data_of(text),
            "spec": spec.model_dump(mode="json") if spec else None,
            **_planned(spec, str(given.get("devices") or "")),
            "problems": [
                {
                    "path": item.path,
                    "message": item.message,
                    "line": spec_text.line_near(lines, item.path),
                }
                for item in problems
            ],
            "differences": differences,
        }
    )


def _planned(spec: ExperimentSpec | None, devices: str) -> dict[str, Any]:
    """What the run takes; where the devices cannot be read, why, and the rest all the same."""
    if spec is None:
        return {"plan": None, "advice": None, "devices_problem": ""}
    try:
        return {**planned(spec, devices), "devices_problem": ""}
    except RefusedError as error:
        return {**planned(spec, ""), "advice": None, "devices_problem": error.detail}


def _changed(text: str, change: dict[str, Any]) -> str:
    """A change that leads nowhere leaves the text as it is: its validation says what is wrong."""
    try:
        if "value" in change:
            return spec_text.set_value(text, str(change["path"]), change["value"])
        return spec_text.remove_value(text, str(change["path"]))
    except (KeyError, TypeError):
        return text
