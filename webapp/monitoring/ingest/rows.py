"""Everything that is not a point: run events, stages, checkpoints, gaps, trajectory rows."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from psycopg import Cursor
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.records.events import (
    CheckpointSaved,
    EvaluationDone,
    Gap,
    Item,
    StageChange,
    TrainedRows,
    TrajectoryRows,
    TrialRows,
)
from webapp import ids, storage
from webapp.experiments import services
from webapp.experiments.evaluations import problem_of_report
from webapp.experiments.models import Checkpoint, Stage
from webapp.monitoring.bulk import numbers
from webapp.monitoring.ingest.parsing import Batch
from webapp.monitoring.ingest.trials import problem_of_trials
from webapp.monitoring.models import Gap as StoredGap
from webapp.plain_text import storable_json
from webapp.reviews.models import Trajectory

INT = 2**31
MAX_JSON = 1_000_000

_EVENTS = """
    INSERT INTO monitoring_runevent (run_id, attempt_id, kind, source, seq, at, cursor, data)
    SELECT %(run)s, %(attempt)s, kind, source, seq, at, %(cursor)s, data::jsonb
    FROM unnest(%(kinds)s::text[], %(sources)s::text[], %(seqs)s::bigint[],
                %(ats)s::float8[], %(data)s::text[]) AS given (kind, source, seq, at, data)
    ON CONFLICT (attempt_id, source, seq) DO NOTHING
"""


Row = TypeVar("Row", bound=BaseModel)
Rows = TypeVar("Rows", bound=TrajectoryRows | TrainedRows)


class IndexRow(BaseModel):
    """What a trajectory's index row must be to be stored; see `engine.records.shards.index_row`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = Field(min_length=1, max_length=40, pattern=r"^[\w.-]+$")
    offset: int = Field(ge=0, lt=2**63)
    length: int = Field(ge=1, lt=2**63)
    task_id: str = Field(max_length=80)
    group_id: str = Field(max_length=80)
    category: str = Field(max_length=40)
    purpose: str = Field(max_length=14)
    prompt: str = Field(max_length=500)
    stop_reason: str = Field(max_length=20)
    reward: float | None = Field(allow_inf_nan=False)
    success: bool
    steps: int = Field(ge=0, lt=INT)
    calls: int = Field(ge=0, lt=INT)
    failed_calls: int = Field(ge=0, lt=INT)
    sampled_tokens: int = Field(ge=0, lt=INT)
    tokens: int = Field(ge=0, lt=INT)
    version_min: int = Field(ge=-1, lt=INT)
    version_max: int = Field(ge=-1, lt=INT)
    worker: str = Field(max_length=80)
    started_at: datetime
    duration_s: float = Field(ge=0, allow_inf_nan=False)


def store_events(
    sql: Cursor[Any], run_id: str, attempt_id: str, cursor: int, items: list[tuple[Item, str]]
) -> None:
    """Store events with their JSON as `as_json` made it."""
    if not items:
        return
    sql.execute(
        _EVENTS,
        {
            "run": run_id,
            "attempt": attempt_id,
            "cursor": cursor,
            "kinds": [item.kind for item, _ in items],  # type: ignore[attr-defined]
            "sources": [storable_json(item.source) for item, _ in items],
            "seqs": numbers(item.seq for item, _ in items),
            "ats": numbers(item.at for item, _ in items),
            "data": [text for _, text in items],
        },
    )


def as_json(item: Item) -> str:
    """The event's own fields. Raises ValueError for numbers that JSON has no word for."""
    data = item.model_dump(mode="json", exclude={"source", "seq", "at", "kind"})
    text = json.dumps(storable_json(data), ensure_ascii=False, allow_nan=False)
    if len(text) > MAX_JSON:
        raise ValueError(f"an event has at most {MAX_JSON:,} characters, not {len(text):,}")
    return text


def store_stage(attempt_id: str, item: StageChange) -> None:
    """Progress never goes back; `started_at` is the first time that the stage was heard of."""
    at = datetime.fromtimestamp(item.at, UTC)
    stage = Stage.objects.filter(attempt_id=attempt_id, index=item.index).first() or Stage(
        attempt_id=attempt_id, index=item.index, started_at=at
    )
    stage.name, stage.steps = storable_json(item.name), item.steps
    stage.step = max(stage.step, item.step)
    stage.started_at = min(stage.started_at, at)
    if item.state == "done" or stage.state != "done":
        stage.state = item.state
    if item.state == "done":
        stage.ended_at, stage.summary = at, storable_json(item.summary)
    stage.save()


def store_checkpoint(run_id: str, attempt_id: str, item: CheckpointSaved) -> None:
    Checkpoint.objects.get_or_create(
        attempt_id=attempt_id,
        path=item.path,
        defaults={
            "id": ids.checkpoint_id(),
            "run_id": run_id,
            "stage": item.stage,
            "step": item.step,
            "policy_version": item.version,
            "files": item.files,
            "final": item.final,
            "parent_path": item.parent,
            "created_at": datetime.fromtimestamp(item.at, UTC),
        },
    )


def problem_of(run_id: str, item: Item) -> tuple[str, str] | None:
    """(field, message) where the types are right and the content cannot be stored."""
    if isinstance(item, StageChange):
        numbers = {"index": item.index, "step": item.step, "steps": item.steps}
    elif isinstance(item, CheckpointSaved):
        numbers = {"stage": item.stage, "step": item.step, "version": item.version}
        for name, path in (("path", item.path), ("parent", item.parent or item.path)):
            if not storage.is_safe(path):
                return name, "A relative path of plain names is expected."
        for name, manifest in item.files.items():
            if not storage.is_safe(name):
                return "files", f"{name!r} is no plain file name."
            if problem := _problem_of_parts(run_id, manifest):
                return f"files.{name}", problem
    elif isinstance(item, TrialRows):
        return problem_of_trials(item)
    elif isinstance(item, EvaluationDone):
        names = ("stage", "step", "version", "trials", "parts")
        numbers = {name: getattr(item, name) for name in names}
        if not storage.is_safe(item.path):
            return "path", "A relative path of plain names is expected."
        if problem := problem_of_report(item.report):
            return "report", problem
    elif isinstance(item, Gap):
        numbers = {"items": item.items}
    else:
        return None
    for name, number in numbers.items():
        if not 0 <= number < INT:
            return name, f"{number} is not between 0 and {INT - 1}."
    return None


def _problem_of_parts(run_id: str, manifest: dict[str, Any]) -> str:
    """A file in parts names blobs that the run uploaded, in their order; "" where all is well.

    Files without parts lie on the run's storage, where their writer put them."""
    if "parts" not in manifest:
        return ""
    parts, size = manifest["parts"], manifest.get("size")
    if type(size) is not int or not 0 <= size < 2**63:
        return "The size of a file is a number of bytes."
    if not isinstance(parts, list) or not all(
        isinstance(part, str) and storage.SHA256.fullmatch(part) for part in parts
    ):
        return "Parts are SHA-256 in lower-case hex."
    if missing := services.not_uploaded(run_id, parts):
        return f"Upload the part {missing[0]} first."
    return ""


def gap_row(run_id: str, attempt_id: str, item: Gap) -> StoredGap:
    return StoredGap(
        run_id=run_id,
        attempt_id=attempt_id,
        what=storable_json(item.what),
        items=item.items,
        since=item.since,
        at=item.at,
    )


def readable(
    run_id: str, form: type[Row], given: Sequence[tuple[int, Rows]], batch: Batch
) -> Iterator[tuple[int, Rows, list[Row]]]:
    """Items with their rows in a form; one with a bad row or a shard of others is rejected."""
    absent = set(services.not_uploaded(run_id, (item.shard for _, item in given)))
    for index, item in given:
        try:
            found = [form.model_validate(storable_json(row)) for row in item.rows]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = ".".join(["rows", *map(str, first["loc"])])
            batch.reject(index, item, name, first["msg"])
            continue
        if item.shard in absent:
            batch.reject(index, item, "shard", "Upload the shard before its rows.")
            continue
        yield index, item, found


def store_trajectories(
    run_id: str,
    project_id: str,
    attempt_id: str,
    cursor: int,
    given: list[tuple[int, TrajectoryRows]],
    batch: Batch,
) -> int:
    """Store index rows; an item with a bad row, a shard of others or a foreign id is rejected."""
    rows: dict[str, Trajectory] = {}
    for index, item, found in readable(run_id, IndexRow, given, batch):
        taken = Trajectory.objects.filter(pk__in=[row.id for row in found]).exclude(run_id=run_id)
        if taken.exists():
            batch.reject(index, item, "rows.id", "Another run has a trajectory with this id.")
            continue
        for row in found:
            rows[row.id] = Trajectory(
                run_id=run_id,
                project_id=project_id,
                attempt_id=attempt_id,
                cursor=cursor,
                shard=item.shard,
                **row.model_dump(),
            )
    return len(Trajectory.objects.bulk_create(rows.values(), ignore_conflicts=True))
