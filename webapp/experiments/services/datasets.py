"""Datasets: immutable versions of JSON lines. Every wrong row of an upload is named."""

import codecs
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import IO, Any, Literal, NoReturn

import zstandard
from django.db import IntegrityError, transaction
from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from webapp import queue, storage
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import Dataset, DatasetVersion, Removal
from webapp.experiments.parquet import BadRow, is_parquet, rows_of_parquet
from webapp.experiments.services.blobs import lock_blob
from webapp.experiments.services.distribution import Spread
from webapp.problems import FieldProblem, RefusedError, conflict, invalid_field

MAX_ROW_BYTES = 16 * 2**20
MAX_PROBLEMS = 50
MOST_NAMED = 5


class Row(BaseModel):
    """Base of the rows: what we need is checked, what else is there is kept."""

    model_config = ConfigDict(extra="allow", frozen=True)

    category: str = Field("", max_length=40)


class TaskRow(Row):
    prompt: str = Field(min_length=1)
    answer: JsonValue


class TrajectoryRow(Row):
    id: str = Field(min_length=1, max_length=40)
    prompt: str
    steps: list[dict[str, JsonValue]]


class PairRow(Row):
    prompt: str = Field(min_length=1)
    chosen: JsonValue
    rejected: JsonValue


class StepLabelRow(Row):
    trajectory: str = Field(min_length=1, max_length=40)
    step: int = Field(ge=0)
    label: Literal["good", "neutral", "bad"] | float


ROWS: dict[str, TypeAdapter[Any]] = {
    "tasks": TypeAdapter(TaskRow),
    "trajectories": TypeAdapter(TrajectoryRow),
    "pairs": TypeAdapter(PairRow),
    "step_labels": TypeAdapter(StepLabelRow),
}


@dataclass(frozen=True)
class CheckedRows:
    """Rows that were found sound: compressed as a version keeps them, counted, described."""

    blob: bytes
    rows: int
    spread: Spread


@transaction.atomic
def create_dataset(project: Project, user: User | None, name: str, kind: str) -> Dataset:
    name = checked_name(name)
    if kind not in ROWS:
        raise invalid_field("kind", f"{kind!r} is no kind of dataset: use {', '.join(ROWS)}.")
    try:
        with transaction.atomic():
            dataset = Dataset.objects.create(project=project, name=name, kind=kind)
    except IntegrityError:
        raise invalid_field("name", f"There is a dataset {name!r} already.") from None
    record("dataset.create", dataset.pk, user=user, project=project, name=name, kind=kind)
    return dataset


def checked_name(name: str) -> str:
    """A dataset's name as it is stored. Raises RefusedError."""
    name = name.strip()
    if not 1 <= len(name) <= 80:
        raise invalid_field("name", f"A dataset's name has 1 to 80 characters, not {len(name)}.")
    return name


def add_dataset_version(
    dataset: Dataset,
    user: User | None,
    lines: Iterable[bytes | BadRow],
    *,
    source: dict[str, Any],
    note: str = "",
) -> DatasetVersion:
    """The next version, from JSON lines. Raises RefusedError naming the wrong rows ("rows.17")."""
    return store_version(dataset, user, checked_rows(dataset.kind, lines), source=source, note=note)


def store_version(
    dataset: Dataset,
    user: User | None,
    checked: CheckedRows,
    *,
    source: dict[str, Any],
    note: str = "",
) -> DatasetVersion:
    """The next version, from rows of the dataset's kind."""
    sha256 = hashlib.sha256(checked.blob).hexdigest()
    with transaction.atomic():
        lock_blob(sha256)
        storage.put_blob(checked.blob, sha256)
        locked = Dataset.objects.select_for_update(no_key=True).get(pk=dataset.pk)
        locked.last_number += 1  # never one that a deleted version had
        locked.save(update_fields=["last_number"])
        version = DatasetVersion.objects.create(
            dataset=dataset,
            number=locked.last_number,
            blob=sha256,
            rows=checked.rows,
            size=len(checked.blob),
            categories=checked.spread.categories,
            difficulties=checked.spread.difficulties,
            source=source,
            note=note[:400],
            created_by=user,
        )
        record(
            "dataset.version",
            version.pk,
            user=user,
            project=dataset.project,
            dataset=dataset.name,
            number=version.number,
            rows=version.rows,
        )
    return version


def upload_version(dataset: Dataset, user: User, file: Any, note: str = "") -> DatasetVersion:
    """The next version, from an uploaded file of JSON lines or Parquet. Raises RefusedError."""
    lines = rows_of_parquet(file) if is_parquet(file) else _lines(file)
    source = {"kind": "upload", "file": (file.name or "")[:200]}
    return add_dataset_version(dataset, user, lines, source=source, note=note)


def _lines(file: IO[bytes]) -> Iterator[bytes | BadRow]:
    """Lines of an uploaded file. Of one that is too long no more than a row is held."""
    file.seek(0)
    mark = file.read(len(codecs.BOM_UTF8))  # some editors begin a file with it
    if mark != codecs.BOM_UTF8:
        file.seek(0)
    while line := file.readline(MAX_ROW_BYTES + 1):
        size = len(line)
        while not line.endswith(b"\n") and (rest := file.readline(MAX_ROW_BYTES)):
            line, size = rest, size + len(rest)
        if size > MAX_ROW_BYTES + 1:
            yield BadRow(_too_long(size))
        else:
            yield line


def checked_rows(kind: str, lines: Iterable[bytes | BadRow]) -> CheckedRows:
    """Rows of a kind of dataset. Raises RefusedError naming the wrong ones ("rows.17")."""
    adapter = ROWS[kind]
    problems: list[FieldProblem] = []
    spread = Spread()
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    pieces: list[bytes] = []
    rows = 0
    for number, line in enumerate(lines, start=1):
        if isinstance(line, BadRow):
            problems.append(FieldProblem(f"rows.{number}", line.message))
            if len(problems) >= MAX_PROBLEMS:
                break
            continue
        line = line.strip()
        if not line:
            continue
        found = _problems(adapter, line, number)
        if isinstance(found, list):
            problems += found
            if len(problems) >= MAX_PROBLEMS:
                break
            continue
        rows += 1
        spread.add(found)
        pieces.append(compressor.compress(line + b"\n"))
    if problems:
        count = "1 problem was" if len(problems) == 1 else f"{len(problems)} problems were"
        raise RefusedError(f"{count} found; nothing was stored.", problems[:MAX_PROBLEMS])
    if not rows:
        raise RefusedError(
            "There are no rows in this file: one JSON object a line is expected, or Parquet."
        )
    return CheckedRows(b"".join([*pieces, compressor.flush()]), rows, spread)


def _problems(
    adapter: TypeAdapter[Any], line: bytes, number: int
) -> dict[str, Any] | list[FieldProblem]:
    """The row, or what is wrong with it."""
    path = f"rows.{number}"
    if len(line) > MAX_ROW_BYTES:
        return [FieldProblem(path, _too_long(len(line)))]
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        at = f"byte {error.start + 1} is {line[error.start]:#04x}"
        return [FieldProblem(path, f"This is no UTF-8: {at}. Save the file as UTF-8.")]
    try:
        data = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return [FieldProblem(path, f"This is no JSON: {error}")]
    try:
        return adapter.validate_python(data).model_dump()  # type: ignore[no-any-return]
    except ValidationError as error:
        return [
            FieldProblem(".".join([path, *map(str, item["loc"])]), item["msg"])
            for item in error.errors(include_url=False, include_context=False)
        ]


def _too_long(size: int) -> str:
    return f"The row has {size:,} bytes, at most 16 MiB fit."


def _finite(text: str) -> float:
    return value if isfinite(value := float(text)) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no finite number; write null for one that is missing")


@transaction.atomic
def delete_dataset_version(version: DatasetVersion, user: User) -> None:
    """Remove a version and, from a task, its rows. Its number is never given again.

    Raises RefusedError (409) naming the runs that learn from it.
    """
    Dataset.objects.select_for_update(no_key=True).get(pk=version.dataset_id)
    if runs := used_by(version):
        raise conflict(
            f"Version {version.number} of {version.dataset.name} is what {', '.join(runs)} learned "
            "from: what a run was launched with must be traceable. Delete those runs first."
        )
    record(
        "dataset.version.delete",
        version.pk,
        user=user,
        project=version.dataset.project,
        dataset=version.dataset.name,
        number=version.number,
    )
    Removal.objects.create(kind="blob", name=version.blob)
    version.delete()
    queue.send("caravan.remove")


@transaction.atomic
def delete_dataset(dataset: Dataset, user: User) -> None:
    """Remove a dataset that has no version. Raises RefusedError (409)."""
    Dataset.objects.select_for_update().get(pk=dataset.pk)
    if dataset.versions.exists():
        raise conflict(f"{dataset.name} has versions: delete those first.")
    record("dataset.delete", dataset.pk, user=user, project=dataset.project, name=dataset.name)
    dataset.delete()


def used_by(version: DatasetVersion) -> list[str]:
    """The runs that learn from a version, as people name them."""
    runs = version.stage_datasets.order_by("-run__created_at", "stage")
    names = list(dict.fromkeys(runs.values_list("run__name", flat=True)))
    more = len(names) - MOST_NAMED
    return [
        *(f"run {name!r}" for name in names[:MOST_NAMED]),
        *([f"{more} more"] if more > 0 else []),
    ]
