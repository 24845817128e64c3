"""What runs and their parts look like on the wire."""

from datetime import datetime
from typing import Any

from ninja import Schema

from webapp.experiments.models import Run
from webapp.experiments.queries import RunDetail
from webapp.rest.etags import etag_of
from webapp.rest.schemas import Person, ProjectRef


class ExperimentRef(Schema):
    id: str
    name: str


class RunOut(Schema):
    """A run in a list."""

    id: str
    name: str
    project: ProjectRef
    experiment: ExperimentRef
    state: str
    state_reason: str
    wish: str
    pause_rollouts: bool
    pause_training: bool
    phase: str
    stage: int
    step: int
    steps: int
    headline: dict[str, float]
    tags: list[str]
    notes: str
    priority: int  # in the project's queue; higher goes first
    parent_id: str | None
    checkpoint_id: str | None  # of the parent, which it starts from
    is_demo: bool
    is_dry_run: bool  # of its spec on tiny amounts
    is_external: bool
    archived_at: datetime | None
    created_by: Person | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class RunPage(Schema):
    items: list[RunOut]
    next_cursor: str | None


class AttemptOut(Schema):
    id: str
    number: int
    state: str
    state_reason: str
    code_version: str
    resume_from_id: str | None
    ray_job_id: str
    heartbeat_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class StageOut(Schema):
    index: int
    name: str
    state: str
    step: int
    steps: int
    started_at: datetime
    ended_at: datetime | None
    summary: dict[str, Any]


class StageDatasetOut(Schema):
    """The version of a dataset that a stage learns from; `stage` null: that evaluations play."""

    stage: int | None
    version_id: str
    number: int
    dataset_id: str
    name: str


class RunDetailOut(RunOut):
    """A run with everything that does not change by the second."""

    spec: dict[str, Any]
    spec_hash: str
    code_version: str
    reward_scheme_id: str | None
    datasets: list[StageDatasetOut]
    cursor: int
    summary: dict[str, Any]
    attempts: list[AttemptOut]
    stages: list[StageOut]
    elapsed_s: float | None
    left_s: float | None
    children: int
    etag: str


def run_etag(run: Run) -> str:
    return etag_of(run.name, run.notes, run.tags, run.archived_at)


def detail_out(detail: RunDetail) -> dict[str, Any]:
    """The detail as its schema wants it."""
    run = detail.run
    fields = {name: getattr(run, name) for name in RunDetailOut.model_fields if hasattr(run, name)}
    return {
        **fields,
        "attempts": detail.attempts,
        "stages": detail.stages,
        "elapsed_s": detail.elapsed_s,
        "left_s": detail.left_s,
        "children": detail.children,
        "datasets": [
            {
                "stage": one.stage,
                "version_id": one.version_id,
                "number": one.version.number,
                "dataset_id": one.version.dataset_id,
                "name": one.version.dataset.name,
            }
            for one in detail.datasets
        ],
        "etag": run_etag(run),
    }


class CheckpointOut(Schema):
    id: str
    run_id: str
    attempt_id: str
    stage: int
    step: int
    policy_version: int
    files: dict[str, dict[str, Any]]
    final: bool
    parent_id: str | None  # the checkpoint that its stage began with
    created_at: datetime
    removed_at: datetime | None


class SchemeVersionOut(Schema):
    id: str
    number: int
    definition: dict[str, Any]
    digest: str
    note: str
    created_by: Person | None
    created_at: datetime


class SchemeOut(Schema):
    id: str
    name: str
    project_id: str
    created_at: datetime


class SchemeRow(SchemeOut):
    version_count: int
    run_count: int  # launched with one of its versions
    newest_at: datetime | None


class SchemePage(Schema):
    items: list[SchemeRow]
    next_cursor: str | None


class SchemeDetail(SchemeOut):
    versions: list[SchemeVersionOut]


class SchemeVersionRow(Schema):
    """A version in a list of those of all schemes, without its definition."""

    id: str
    scheme: SchemeOut
    number: int
    note: str
    created_by: Person | None
    created_at: datetime


class SchemeVersionPage(Schema):
    items: list[SchemeVersionRow]
    next_cursor: str | None


class DatasetVersionOut(Schema):
    id: str
    number: int
    rows: int
    size: int
    categories: dict[str, int]
    difficulties: list[tuple[float, float, int]]  # from, to (both belong to it), rows
    source: dict[str, Any]
    note: str
    created_by: Person | None
    created_at: datetime


class DatasetOut(Schema):
    id: str
    name: str
    kind: str
    project_id: str
    created_at: datetime


class DatasetRow(DatasetOut):
    version_count: int
    newest_rows: int | None  # of its newest version
    newest_at: datetime | None


class DatasetPage(Schema):
    items: list[DatasetRow]
    next_cursor: str | None


class DatasetDetail(DatasetOut):
    versions: list[DatasetVersionOut]


class DatasetVersionRow(Schema):
    """A version in a list of those of all datasets."""

    id: str
    dataset: DatasetOut
    number: int
    rows: int
    note: str
    created_by: Person | None
    created_at: datetime


class DatasetVersionPage(Schema):
    items: list[DatasetVersionRow]
    next_cursor: str | None
