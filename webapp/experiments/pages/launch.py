"""Launch: a recipe, a preset or a run to clone, edited as YAML and as a form, then launched."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from engine.planner import DEVICES
from engine.spec import ExperimentSpec
from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import lists, services, stored
from webapp.experiments.models import Run
from webapp.experiments.pages.launch_start import Start, sorted_recipes, start_of
from webapp.experiments.pages.presets import CARDS
from webapp.experiments.services import Launch
from webapp.experiments.spec_text import MAX_SPEC
from webapp.pages import page_of, show, whole_number
from webapp.problems import RefusedError

FIELDS = ("text", "experiment", "name", "notes", "tags", "priority")


@page_of(Project.objects.all(), Role.EDITOR)
def launch(request: HttpRequest, project: Project) -> HttpResponse:
    """What the address may say is told at `start_of`."""
    start = start_of(request, project)
    values = dict.fromkeys(FIELDS, "")
    refused: RefusedError | None = None
    if request.method == "POST":
        values |= {key: request.POST.get(key, "") for key in values}
        try:
            return redirect("run", _launch(request, project, start, values).pk)
        except RefusedError as error:
            refused = error
    else:
        values["text"] = start.text
        values["experiment"] = start.parent.experiment.name if start.parent else ""
    actor = access.actor_of(request)
    presets = lists.list_presets(actor, project.pk, limit=CARDS)
    saved = project.presets.select_related("updated_by").defer("text")
    chosen = [start.name] if start.kind == "preset" else []
    experiments = lists.list_experiments(actor, project.pk)
    context = {
        "section": "launch",
        "recipes": sorted_recipes(),
        "presets": lists.with_chosen(presets, saved, chosen),
        "more_presets": presets.next_cursor is not None,
        "start": start,
        "parent": start.parent,
        "checkpoint": start.checkpoint,
        "values": values,
        "refused": refused,
        "most": f"{MAX_SPEC}",  # no thousands' separator
        "schema": ExperimentSpec.model_json_schema(),
        "stored": stored.offered(actor, project, values["text"]),
        "devices": [f"8x{device.name}" for device in DEVICES.values()],
        "experiments": [experiment.name for experiment in experiments.items],
    }
    status = refused.status if refused else 200
    return show(request, "experiments/launch.html", context, status=status)


def _launch(request: HttpRequest, project: Project, start: Start, values: dict[str, str]) -> Run:
    return services.launch_run(
        project,
        access.actor_of(request).user,
        services.check_spec(values["text"]),
        Launch(
            experiment=values["experiment"],
            name=values["name"],
            notes=values["notes"],
            priority=whole_number("priority", values["priority"] or "0"),
            tags=values["tags"].replace(",", " ").split(),
            parent=start.parent,
            checkpoint=start.checkpoint,
            dry_run=bool(request.POST.get("dry_run")),
        ),
    )
