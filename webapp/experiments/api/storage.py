"""REST of storage: what takes space, measuring it, pruning with a preview."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema, Status

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import services, storage_use
from webapp.experiments.api.jobs import JobDetailOut

router = Router(tags=["storage"])


class RunUseOut(Schema):
    """Bytes of a run. `files` by top folder are as last measured; null: never measured."""

    run_id: str
    name: str
    state: str
    archived: bool
    keep: int | None
    checkpoints: int
    checkpoint_bytes: int
    uploads: int
    upload_bytes: int
    files: dict[str, int] | None


class DatasetUseOut(Schema):
    dataset_id: str
    name: str
    versions: int
    bytes: int


class TableUseOut(Schema):
    """A table of PostgreSQL with its indexes, of all projects together."""

    name: str
    bytes: int
    rows: int


class PolicyOut(Schema):
    what: str
    kept: str


class StorageOut(Schema):
    """`runs` are the largest; the totals are of all."""

    run_count: int
    checkpoint_bytes: int
    upload_bytes: int
    dataset_bytes: int
    export_bytes: int
    measured_bytes: dict[str, int]
    measured_at: datetime | None
    waiting: int
    runs: list[RunUseOut]
    datasets: list[DatasetUseOut]
    dataset_count: int
    tables: list[TableUseOut]
    policies: list[PolicyOut]


class PruneIn(Schema):
    """`keep_checkpoints`: of every ended run so many of the newest stay, besides the final ones.

    `preview`, true unless said otherwise, removes nothing.
    """

    keep_checkpoints: int | None = None
    pools: bool = False
    archived_trajectories: bool = False
    exports: bool = False
    preview: bool = True


@router.get("/projects/{project_id}/storage", response=StorageOut)
def get_storage(request: HttpRequest, project_id: str) -> Any:
    """What takes space in a project, and by which rules it is kept."""
    found = storage_use.use_of(_project(request, project_id))
    measured_at = found.measured.ended_at if found.measured else None
    policies = [{name: str(text) for name, text in one.items()} for one in storage_use.policies()]
    return {**vars(found), "measured_at": measured_at, "policies": policies}


@router.post("/projects/{project_id}/storage/measure", response={202: JobDetailOut})
def measure_storage(request: HttpRequest, project_id: str) -> Any:
    """Look at the files of all runs: a job."""
    project = _project(request, project_id, Role.EDITOR)
    return Status(202, services.start_measure(project, access.actor_of(request).user))


@router.post("/projects/{project_id}/storage/prune", response={202: JobDetailOut})
def prune_storage(request: HttpRequest, project_id: str, data: PruneIn) -> Any:
    """Remove what nothing refers to, or say what would go: a job. Admins only."""
    project = _project(request, project_id, Role.ADMIN)
    return Status(202, services.start_prune(project, access.actor_of(request).user, data.dict()))


def _project(request: HttpRequest, project_id: str, role: Role = Role.VIEWER) -> Project:
    return access.get(Project.objects.all(), project_id, access.actor_of(request), role)
