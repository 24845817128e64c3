"""Try it: choose a task for a checkpoint, watch it being played, and open its replay."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import services, tries
from webapp.experiments.models import ACTIVE_STATES, Checkpoint, Run
from webapp.experiments.pages.run import RUNS, number_of, progress_of, run_context
from webapp.experiments.queries import run_detail
from webapp.pages import is_fragment, page_of, show
from webapp.problems import RefusedError, invalid_field

TASKS_SHOWN = 100
FIELDS = ("checkpoint", "how", "task", "position", "question", "answer", "temperature")


@page_of(RUNS, Role.EDITOR)
def try_it(request: HttpRequest, run: Run) -> HttpResponse:
    """`?checkpoint=` is the one to try, the newest where none is named; `?q=` searches tasks."""
    values = {name: request.POST.get(name, "") for name in FIELDS}
    values["checkpoint"] = values["checkpoint"] or request.GET.get("checkpoint", "")
    refused: RefusedError | None = None
    if request.method == "POST":
        try:
            return redirect("run_played", _started(request, run, values).pk)
        except RefusedError as error:
            refused = error
    q = request.GET.get("q", "")
    found = tries.tasks_of(run, search=q)
    kept = run.checkpoints.filter(removed_at=None).order_by("-created_at", "-step")
    context = run_context(run, "checkpoints") | {
        "checkpoints": kept,
        "values": values,
        "refused": refused,
        "errors": {item.path.rpartition(".")[2] for item in refused.errors} if refused else set(),
        "tasks": found[:TASKS_SHOWN],
        "task_count": len(found),
        "q": q,
    }
    status = refused.status if refused else 200
    return show(
        request, "experiments/run_try.html", context, "experiments/run_try_tasks.html", status
    )


def _started(request: HttpRequest, run: Run, values: dict[str, str]) -> Run:
    actor = access.actor_of(request)
    rows = Checkpoint.objects.filter(run=run).select_related("run__project", "run__experiment")
    checkpoint = access.get(rows, values["checkpoint"], actor, Role.EDITOR)
    how, place = values["how"], "task" if values["task"] else "position"
    is_placed = place == "task" or how == "position"
    position = number_of(request, place, int) if is_placed else None
    if is_placed and position is None:
        raise invalid_field("position", _("Give the number of a task, or let one be drawn."))
    temperature = number_of(request, "temperature", float)
    asks = how == "question"
    return services.try_checkpoint(
        checkpoint,
        actor.user,
        services.Tried(
            position=position,
            question=values["question"].strip() if asks else None,
            answer=values["answer"].strip() if asks else None,
            temperature=temperature or 0.0,
        ),
    )


@page_of(RUNS)
def played(request: HttpRequest, run: Run) -> HttpResponse:
    """How far the task is; once it is played, on to its replay."""
    found = tries.played_by(run)
    if found is not None:
        address = reverse("replay", args=[found.pk])
        if not is_fragment(request):
            return redirect(address)
        response = HttpResponse(status=200)
        response["HX-Redirect"] = address
        return response
    stages = run.spec.get("stages", [])
    context: dict[str, Any] = run_context(run, "overview") | {
        "task": stages[1] if len(stages) > 1 else {},
        "waits": run.state in ACTIVE_STATES,
        "progress": progress_of(run_detail(run).stages),
    }
    fragment = "experiments/run_played_state.html"
    return show(request, "experiments/run_played.html", context, fragment)
