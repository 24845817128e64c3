"""The machines: nodes and their devices, the runs that work on them, and those that wait."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import run_queue, services
from webapp.experiments.models import Run, State
from webapp.experiments.queries import active_runs
from webapp.monitoring import queries
from webapp.pages import page_of, show, tell, whole_number
from webapp.problems import RefusedError


@page_of(Project.objects.all())
def cluster(request: HttpRequest, project: Project) -> HttpResponse:
    actor = access.actor_of(request)
    newest = queries.newest_devices()
    queue, roles = run_queue.run_queue(actor), actor.roles()
    data = [{"node": sample.node, "at": sample.at, "devices": sample.devices} for sample in newest]
    context = {
        "section": "cluster",
        "nodes": newest,
        "devices": data,
        "runs": active_runs(actor).filter(is_external=False).exclude(state=State.QUEUED),
        "queue": [(row, roles[row.run.project_id].rank >= Role.EDITOR.rank) for row in queue],
        "places": run_queue.places(actor),
    }
    return show(request, "monitoring/cluster.html", context)


@require_POST
@page_of(Run.objects.select_related("project"), Role.EDITOR)
def move(request: HttpRequest, run: Run) -> HttpResponse:
    """Move a queued run in its project's queue."""
    user = access.actor_of(request).user
    try:
        if place := request.POST.get("place"):
            services.move_in_queue(run.pk, user, place)
        else:
            services.set_priority(
                run.pk, user, whole_number("priority", request.POST.get("priority", ""))
            )
    except RefusedError as refused:
        tell(request, refused)
    return redirect(f"{reverse('cluster', args=[run.project_id])}#queue")
