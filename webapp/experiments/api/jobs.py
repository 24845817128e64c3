"""REST of jobs: list, read with log and result, stop."""

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router, Schema, Status

from webapp import storage
from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import job_queries, services
from webapp.experiments.jobs import KINDS
from webapp.experiments.models import Job
from webapp.problems import RefusedError, conflict
from webapp.rest.schemas import Cursor, Limit, Person, ProjectRef

router = Router(tags=["jobs"])
JOBS = Job.objects.select_related("project", "created_by")
States = Annotated[str, Query(description="For example `running`, or `active` for all not ended")]


class JobOut(Schema):
    """A job in a list. `total` is null, and `left_s`, where nobody can tell."""

    id: str
    project: ProjectRef
    kind: str
    title: str
    subject: str
    state: str
    state_reason: str
    done: int
    total: int | None
    text: str
    left_s: float | None
    created_by: Person | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class JobPage(Schema):
    items: list[JobOut]
    next_cursor: str | None


class JobDetailOut(JobOut):
    """A job with what it was asked, its log, and its result once it has succeeded."""

    spec: dict[str, Any]
    log: str
    result: dict[str, Any] | None


@router.get("/jobs", response=JobPage)
def list_jobs(
    request: HttpRequest,
    project: str | None = None,
    kind: str = "",
    state: States = "",
    subject: str = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Jobs of my projects, the newest first."""
    actor = access.actor_of(request)
    jobs = access.visible(JOBS, actor)
    if project:
        jobs = jobs.filter(project=access.default_project(actor, project))
    return job_queries.list_jobs(jobs, kind, state, subject, cursor, limit)


@router.get("/jobs/{job_id}", response=JobDetailOut)
def get_job(request: HttpRequest, job_id: str) -> Any:
    return access.get(JOBS, job_id, access.actor_of(request))


@router.get("/jobs/{job_id}/file", response={200: None})
def get_job_file(request: HttpRequest, job_id: str) -> StreamingHttpResponse:
    """The file that a job made, of those that make one: exports."""
    job = access.get(JOBS, job_id, access.actor_of(request))
    result = job.result or {}
    file = result.get("file")
    if job.kind != services.EXPORT:
        raise RefusedError(f"Jobs of kind {job.kind} make no file: an export does.", status=404)
    if file is None and job.ended_at is None:
        raise conflict(f"This job is {job.state}: its file is there once it has succeeded.")
    try:
        if file is None or "removed_at" in result:
            raise FileNotFoundError
        found, size = storage.open_run_file(job.subject, file["path"])
    except FileNotFoundError:
        said = "The file of this export is no longer there: start the export again."
        raise RefusedError(said, status=410) from None
    return storage.attachment(storage.chunks(found), file["name"], size)


@router.post("/jobs/{job_id}/again", response={202: JobDetailOut})
def repeat_job(request: HttpRequest, job_id: str) -> Any:
    """Do the work of a job that has ended once more: a new job, for whoever may start one."""
    actor = access.actor_of(request)
    job = access.get(JOBS, job_id, actor, Role.EDITOR)
    if job.kind in KINDS:
        access.require(actor, job.project_id, KINDS[job.kind].role)
    return Status(202, services.repeat_job(job, actor.user))


@router.post("/jobs/{job_id}/cancel", response={202: JobDetailOut})
def cancel_job(request: HttpRequest, job_id: str) -> Any:
    """End a queued job at once; ask a running one to end with its next step."""
    actor = access.actor_of(request)
    job = access.get(JOBS, job_id, actor, Role.EDITOR)
    services.cancel_job(job.pk, actor.user)
    return Status(202, JOBS.get(pk=job.pk))
