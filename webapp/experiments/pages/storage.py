"""Storage: what takes space, the rules by which it is kept, and pruning with a preview."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import services, storage_use
from webapp.experiments.models import Job, Run
from webapp.experiments.services.prune import KIND, MEASURE
from webapp.pages import page_of, show, tell, whole_number
from webapp.problems import RefusedError

PRUNES = Job.objects.filter(kind=KIND).select_related("project", "created_by")


@require_safe
@page_of(Project.objects.all())
def overview(request: HttpRequest, project: Project) -> HttpResponse:
    jobs = Job.objects.filter(project=project, kind__in=(KIND, MEASURE), ended_at=None)
    context = {
        "section": "storage",
        "use": storage_use.use_of(project),
        "policies": storage_use.policies(),
        "active": jobs.order_by("-created_at").first(),
    }
    return show(request, "experiments/storage.html", context)


@require_POST
@page_of(Project.objects.all(), Role.EDITOR)
def measure(request: HttpRequest, project: Project) -> HttpResponse:
    return redirect("job", services.start_measure(project, access.actor_of(request).user).pk)


@require_POST
@page_of(Project.objects.all(), Role.ADMIN)
def prune(request: HttpRequest, project: Project) -> HttpResponse:
    """A preview, unless it says `remove`."""
    try:
        wish: dict[str, Any] = {
            "pools": bool(request.POST.get("pools")),
            "archived_trajectories": bool(request.POST.get("archived_trajectories")),
            "exports": bool(request.POST.get("exports")),
            "preview": request.POST.get("action") != "remove",
        }
        if request.POST.get("checkpoints"):
            wish["keep_checkpoints"] = whole_number("keep", request.POST.get("keep", ""))
        job = services.start_prune(project, access.actor_of(request).user, wish)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("storage", project.pk)
    return redirect("job", job.pk)


@require_safe
@page_of(PRUNES)
def pruned(request: HttpRequest, job: Job) -> HttpResponse:
    """What a prune removed, or would."""
    if job.result is None:
        return redirect("job", job.pk)
    runs = Run.objects.filter(project=job.project_id, pk__in=list(job.result["runs"]))
    names = {run.pk: run for run in runs.only("name", "number", "project_id")}
    context = {
        "section": "storage",
        "job": job,
        "found": job.result,
        "rows": [
            {
                "run": names.get(run_id),
                "run_id": run_id,
                "kinds": kinds,
                "bytes": sum(one["bytes"] for one in kinds.values()),
            }
            for run_id, kinds in job.result["runs"].items()
        ],
    }
    return show(request, "experiments/pruned.html", context)
