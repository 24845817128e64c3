"""REST of runs: list, read, control, edit."""

from typing import Annotated, Any

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router, Schema, Status

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import dry_runs, queries, services
from webapp.experiments.api import schemas
from webapp.experiments.models import Run
from webapp.experiments.states import lock
from webapp.rest.etags import check_match, tagged
from webapp.rest.schemas import Cursor, Limit

router = Router(tags=["runs"])
RUNS = Run.objects.select_related("project", "experiment", "created_by")
FilterText = Annotated[
    str, Query(description="For example `status:running algo:cispo success>0.5 tag:baseline text`")
]
Sort = Annotated[str, Query(description="created, name, state or a metric; `-` for descending")]


@router.get("/runs", response=schemas.RunPage)
def list_runs(
    request: HttpRequest,
    project: str | None = None,
    experiment: str | None = None,
    q: FilterText = "",
    sort: Sort = "-created",
    archived: bool = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Runs of my projects, by the filter language."""
    actor = access.actor_of(request)
    return queries.list_runs(
        actor,
        project=access.project_or_all(actor, project),
        experiment=experiment,
        q=q,
        sort=sort,
        archived=archived,
        cursor=cursor,
        limit=limit,
    )


@router.get("/runs/{run_id}", response=schemas.RunDetailOut)
def get_run(request: HttpRequest, response: HttpResponse, run_id: str) -> Any:
    return _detail(_run(request, run_id), response)


class RunPatch(Schema):
    name: str | None = None
    notes: str | None = None
    archived: bool | None = None


@router.patch("/runs/{run_id}", response=schemas.RunDetailOut)
def edit_run(request: HttpRequest, response: HttpResponse, run_id: str, data: RunPatch) -> Any:
    """Change name or notes, or (un)archive; what a run was launched with never changes."""
    run = _run(request, run_id, Role.EDITOR)
    user = access.actor_of(request).user
    with transaction.atomic():
        check_match(request, schemas.run_etag(lock(run.pk)))
        if data.name is not None or data.notes is not None:
            services.edit_run(run.pk, user, name=data.name, notes=data.notes)
        if data.archived is not None:
            services.archive(run.pk, user, data.archived)
    return _detail(RUNS.get(pk=run.pk), response)


@router.delete("/runs/{run_id}", response={204: None})
def delete_run(request: HttpRequest, run_id: str) -> Any:
    """Remove an archived run for good: rows and files. Admins only.

    Refused while a version of a dataset or a judged review queue comes from it.
    """
    run = _run(request, run_id, Role.ADMIN)
    services.delete_run(run.pk, access.actor_of(request).user)
    return Status(204, None)


class TagsIn(Schema):
    add: list[str] = []
    remove: list[str] = []


@router.post("/runs/{run_id}/tags", response=schemas.RunDetailOut)
def tag_run(request: HttpRequest, response: HttpResponse, run_id: str, data: TagsIn) -> Any:
    run = _run(request, run_id, Role.EDITOR)
    services.set_tags(run.pk, access.actor_of(request).user, data.add, data.remove)
    return _detail(RUNS.get(pk=run.pk), response)


@router.post("/runs/{run_id}/stop", response={202: schemas.RunDetailOut})
def stop_run(request: HttpRequest, run_id: str) -> Any:
    """End a queued run at once; ask any other to save a checkpoint and end."""
    run = _run(request, run_id, Role.EDITOR)
    services.stop(run.pk, access.actor_of(request).user)
    return Status(202, _detail(RUNS.get(pk=run.pk)))


@router.post("/runs/{run_id}/resume", response={202: schemas.RunDetailOut})
def resume_run(request: HttpRequest, run_id: str) -> Any:
    """Queue a new attempt from the newest checkpoint."""
    run = _run(request, run_id, Role.EDITOR)
    services.resume(run.pk, access.actor_of(request).user)
    return Status(202, _detail(RUNS.get(pk=run.pk)))


class PauseIn(Schema):
    rollouts: bool | None = None
    training: bool | None = None


@router.post("/runs/{run_id}/pause", response=schemas.RunDetailOut)
def pause_run(request: HttpRequest, run_id: str, data: PauseIn) -> Any:
    """Set the latches that are given: true pauses, false goes on."""
    run = _run(request, run_id, Role.EDITOR)
    services.pause(
        run.pk, access.actor_of(request).user, rollouts=data.rollouts, training=data.training
    )
    return _detail(RUNS.get(pk=run.pk))


@router.get("/runs/{run_id}/stages", response=list[schemas.StageOut])
def list_stages(request: HttpRequest, run_id: str) -> Any:
    """Progress of the newest attempt's stages."""
    return queries.run_detail(_run(request, run_id)).stages


class CheckOut(Schema):
    """One thing that a dry run tries; `state`: done, waiting or missing."""

    part: str
    label: str
    state: str
    seconds: float | None
    detail: str


class DryRunOut(Schema):
    """`passed` is null while the dry run goes on."""

    passed: bool | None
    checks: list[CheckOut]


@router.get("/runs/{run_id}/dry-run", response=DryRunOut)
def get_dry_run(request: HttpRequest, run_id: str) -> Any:
    """What a dry run tried: each part started, one step of each stage, with seconds."""
    run = _run(request, run_id)
    if not run.is_dry_run:
        raise Http404("This run is no dry run.")
    checks = dry_runs.checklist(run)
    return {"passed": dry_runs.passed(run, checks), "checks": checks}


def _run(request: HttpRequest, run_id: str, role: Role = Role.VIEWER) -> Run:
    return access.get(RUNS.all(), run_id, access.actor_of(request), role)


def _detail(run: Run, response: HttpResponse | None = None) -> dict[str, Any]:
    shown = schemas.detail_out(queries.run_detail(run))
    if response is not None:
        tagged(response, shown["etag"])
    return shown
