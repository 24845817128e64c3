"""REST of datasets: immutable versions, uploads, rows, download."""

from typing import Annotated, Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import File, Form, Query, Router, Schema, Status
from ninja.files import UploadedFile

from webapp import storage
from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import lists, queries, services
from webapp.experiments.api.schemas import (
    DatasetDetail,
    DatasetOut,
    DatasetPage,
    DatasetVersionOut,
    DatasetVersionPage,
)
from webapp.experiments.models import Dataset, DatasetVersion
from webapp.experiments.provenance import learners_of, provenance_of
from webapp.rest.schemas import Cursor, Limit, NamePart

router = Router(tags=["datasets"])
Kind = Annotated[
    str, Query(description="tasks, trajectories, pairs or step_labels; several with commas")
]


class DatasetIn(Schema):
    name: str
    kind: Literal["tasks", "trajectories", "pairs", "step_labels"]
    project: str | None = None


@router.get("/datasets", response=DatasetPage)
def list_datasets(
    request: HttpRequest,
    project: str | None = None,
    q: NamePart = "",
    kind: Kind = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Datasets of my projects, by name."""
    actor = access.actor_of(request)
    wanted = access.project_or_all(actor, project)
    return lists.list_datasets(actor, wanted, q, kind, cursor, limit)


@router.get("/dataset-versions", response=DatasetVersionPage)
def list_dataset_versions(
    request: HttpRequest,
    project: str | None = None,
    q: NamePart = "",
    kind: Kind = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Versions of the datasets of my projects, the newest first. A number in `q` is a version's."""
    actor = access.actor_of(request)
    wanted = access.project_or_all(actor, project)
    return lists.list_dataset_versions(actor, wanted, q, kind, cursor, limit)


@router.post("/datasets", response={201: DatasetOut})
def create_dataset(request: HttpRequest, data: DatasetIn) -> Any:
    actor = access.actor_of(request)
    project = access.default_project(actor, data.project, Role.EDITOR)
    return Status(201, services.create_dataset(project, actor.user, data.name, data.kind))


@router.get("/datasets/{dataset_id}", response=DatasetDetail)
def get_dataset(request: HttpRequest, dataset_id: str) -> Any:
    dataset = _dataset(request, dataset_id)
    versions = list(dataset.versions.select_related("created_by").order_by("-number"))
    return {**DatasetOut.from_orm(dataset).dict(), "versions": versions}


@router.post("/datasets/{dataset_id}/versions", response={201: DatasetVersionOut})
def upload_version(
    request: HttpRequest, dataset_id: str, file: File[UploadedFile], note: Form[str] = ""
) -> Any:
    """Upload JSON lines or Parquet as the next version; wrong rows are named, nothing is stored."""
    dataset = _dataset(request, dataset_id, Role.EDITOR)
    user = access.actor_of(request).user
    return Status(201, services.upload_version(dataset, user, file, note))


@router.get("/datasets/{dataset_id}/versions/{number}/rows", response=list[dict[str, Any]])
def read_rows(
    request: HttpRequest,
    dataset_id: str,
    number: int,
    start: Annotated[int, Query(ge=0)] = 0,
    count: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Any:
    """Rows of a version, from `start` (0 is the first)."""
    return queries.rows_of(_version(request, dataset_id, number), start, count)


@router.get("/datasets/{dataset_id}/versions/{number}/file", response={200: None})
def download(request: HttpRequest, dataset_id: str, number: int) -> StreamingHttpResponse:
    """The version as zstd-compressed JSON lines."""
    version = _version(request, dataset_id, number)
    name = f"{dataset_id}-{number}.jsonl.zst"
    return storage.attachment(storage.chunks(storage.open_blob(version.blob)), name, version.size)


class LearnerOut(Schema):
    """A stage of a run that learns from a version."""

    run_id: str
    name: str
    stage: int | None  # null: the run's evaluations play it


class ProvenanceOut(Schema):
    """Where a version came from (`source`, with the run and the queue that are still there), and
    the runs that learn from it."""

    source: dict[str, Any]
    run_id: str | None
    queue_id: str | None
    learners: list[LearnerOut]


@router.get("/datasets/{dataset_id}/versions/{number}/lineage", response=ProvenanceOut)
def lineage(request: HttpRequest, dataset_id: str, number: int) -> Any:
    version = _version(request, dataset_id, number)
    found = provenance_of([version])[version.pk]
    return {
        "source": version.source,
        "run_id": found.run and found.run.pk,
        "queue_id": found.queue and found.queue.pk,
        "learners": [
            {"run_id": one.run_id, "name": one.run.name, "stage": one.stage}
            for one in learners_of(version)
        ],
    }


@router.delete("/datasets/{dataset_id}/versions/{number}", response={204: None})
def delete_version(request: HttpRequest, dataset_id: str, number: int) -> Any:
    """Remove a version for good. Admins only; refused while a run refers to it."""
    version = _version(request, dataset_id, number, Role.ADMIN)
    services.delete_dataset_version(version, access.actor_of(request).user)
    return Status(204, None)


@router.delete("/datasets/{dataset_id}", response={204: None})
def delete_dataset(request: HttpRequest, dataset_id: str) -> Any:
    """Remove a dataset without versions. Admins only, unless it never had one."""
    dataset = _dataset(request, dataset_id, Role.EDITOR)
    if dataset.last_number > 0:
        access.require(access.actor_of(request), dataset.project_id, Role.ADMIN)
    services.delete_dataset(dataset, access.actor_of(request).user)
    return Status(204, None)


def _dataset(request: HttpRequest, pk: str, role: Role = Role.VIEWER) -> Dataset:
    return access.get(Dataset.objects.all(), pk, access.actor_of(request), role)


def _version(
    request: HttpRequest, dataset_id: str, number: int, role: Role = Role.VIEWER
) -> DatasetVersion:
    versions = _dataset(request, dataset_id, role).versions.filter(number=number)
    return access.found_or_404(versions.select_related("dataset__project").first())
