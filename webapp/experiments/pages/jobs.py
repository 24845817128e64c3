"""Jobs of a project, and the page of one: progress, log, result, and how it is stopped."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import job_queries, services
from webapp.experiments.jobs import KINDS
from webapp.experiments.models import Job
from webapp.experiments.services.job_files import EXPORTS_KEPT
from webapp.pages import is_fragment, page_of, show, tell
from webapp.problems import RefusedError

JOBS = Job.objects.select_related("project", "created_by")
# Kinds whose result has a page of its own, by the name of its URL.
RESULT_PAGES = {"backtest": "backtest", "prune": "pruned"}


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    """`?kind=` and `?state=` choose; `active` is every state that has not ended."""
    chosen = {name: request.GET.get(name, "") for name in ("kind", "state")}
    cursor = request.GET.get("cursor")
    try:
        page = job_queries.list_jobs(
            JOBS.filter(project=project), chosen["kind"], chosen["state"], cursor=cursor
        )
    except RefusedError as refused:
        tell(request, refused)
        return redirect("jobs", project.pk)
    context = {
        "section": "jobs",
        "jobs": page.items,
        "next": page.next_cursor,
        "cursor": cursor,
        "kinds": [(name, kind.label) for name, kind in KINDS.items()],
        "chosen": chosen,
        "is_active": any(job.ended_at is None for job in page.items),
    }
    return show(request, "experiments/jobs.html", context, "experiments/jobs_table.html")


@page_of(JOBS)
def one(request: HttpRequest, job: Job) -> HttpResponse:
    kind = KINDS.get(job.kind)
    role = access.actor_of(request).role_in(job.project_id)
    result_url = _result_url(job)
    if result_url and is_fragment(request):  # who watched it to its end wants to see what came
        return HttpResponse(headers={"HX-Redirect": result_url})
    context = {
        "section": "jobs",
        "job": job,
        "kind": kind.label if kind else job.kind,
        "result_url": result_url,
        "days": EXPORTS_KEPT.days,
        "can_repeat": kind is not None and role is not None and role.rank >= kind.role.rank,
    }
    return show(request, "experiments/job.html", context, "experiments/job_body.html")


def _result_url(job: Job) -> str | None:
    """The page of its result; None where that stands on the job's own."""
    if job.result is None:
        return None
    if job.kind == "collect":
        return f"{reverse('dataset', args=[job.result['dataset']])}?version={job.result['number']}"
    page = RESULT_PAGES.get(job.kind)
    return reverse(page, args=[job.pk]) if page else None


@require_POST
@page_of(JOBS, Role.EDITOR)
def again(request: HttpRequest, job: Job) -> HttpResponse:
    actor = access.actor_of(request)
    if job.kind in KINDS:
        access.require(actor, job.project_id, KINDS[job.kind].role)
    try:
        job = services.repeat_job(job, actor.user)
    except RefusedError as refused:
        tell(request, refused)
    return redirect("job", job.pk)


@require_POST
@page_of(JOBS, Role.EDITOR)
def cancel(request: HttpRequest, job: Job) -> HttpResponse:
    try:
        services.cancel_job(job.pk, access.actor_of(request).user)
    except RefusedError as refused:
        tell(request, refused)
    return redirect("job", job.pk)
