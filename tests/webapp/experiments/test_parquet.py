"""Parquet uploads: rows as from JSON lines, errors by row, and files that are made to harm."""

import datetime
import decimal
import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile, TemporaryUploadedFile

from tests.webapp.support import Api
from webapp.experiments import parquet, services
from webapp.experiments.models import Dataset, DatasetVersion
from webapp.problems import RefusedError


def packed(rows: list[dict[str, Any]], **options: Any) -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), held, **options)
    return held.getvalue()


def upload(api: Api, content: bytes, kind: str = "tasks") -> Any:
    made = api("POST", "datasets", {"name": f"set {Dataset.objects.count()}", "kind": kind}).json()
    return api.client.post(
        f"/api/v1/datasets/{made['id']}/versions",
        {"file": SimpleUploadedFile("rows.parquet", content)},
        headers={"Authorization": f"Bearer {api.token}"},
    )


def read(content: bytes) -> list[Any]:
    return list(parquet.rows_of_parquet(io.BytesIO(content)))


ROWS = [
    {"prompt": f"Question {n}? 问题", "answer": n, "category": f"{n % 2 + 2} hops", "x": [n, n]}
    for n in range(70)
]


def test_its_rows_are_those_of_json_lines(api: Api) -> None:
    answer = upload(api, packed(ROWS, row_group_size=30))
    assert answer.status_code == 201, answer.content
    assert (answer.json()["rows"], answer.json()["categories"]) == (
        70,
        {"2 hops": 35, "3 hops": 35},
    )
    version = DatasetVersion.objects.get()
    path = f"datasets/{version.dataset_id}/versions/1/rows"
    assert api("GET", f"{path}?start=60&count=20").json() == ROWS[60:]
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() for row in ROWS]
    same = services.add_dataset_version(version.dataset, None, lines, source={})
    assert same.blob == version.blob


def test_a_file_of_any_name_and_place_is_known_by_its_start(project: Any, owner: Any) -> None:
    dataset = services.create_dataset(project, owner, "d", "tasks")
    with TemporaryUploadedFile("rows.txt", "text/plain", 0, None) as file:
        file.write(packed(ROWS))
        file.seek(0)
        assert services.upload_version(dataset, owner, file).rows == 70


def test_nested_columns_stay_nested_and_null_ones_are_absent() -> None:
    step = {"index": 0, "call": {"name": "find", "arguments": None}}
    (line,) = read(packed([{"id": "t", "prompt": "p", "steps": [step], "note": None}]))
    assert json.loads(line) == {"id": "t", "prompt": "p", "steps": [step]}


def test_dates_and_times_become_text() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    (line,) = read(packed([{"at": at, "day": at.date()}]))
    assert json.loads(line) == {"at": "2026-01-02T03:04:05+00:00", "day": "2026-01-02"}


def test_every_wrong_row_is_named_and_nothing_is_stored(api: Api) -> None:
    rows = [{"prompt": "a", "answer": 1.0}, {"prompt": "", "answer": 1.0}, {"prompt": "c"}]
    answer = upload(api, packed([*rows, {"prompt": "d", "answer": float("nan")}]))
    assert answer.status_code == 422
    problems = {one["path"]: one["message"] for one in answer.json()["errors"]}
    assert set(problems) == {"rows.2.prompt", "rows.3.answer", "rows.4"}
    assert "Column answer" in problems["rows.4"]
    assert not DatasetVersion.objects.exists()


@pytest.mark.parametrize("value", [decimal.Decimal("1.20"), b"\0bytes"])
def test_what_json_has_no_word_for_is_refused_by_column(value: Any) -> None:
    (bad,) = read(packed([{"prompt": "a", "odd": value}]))
    assert isinstance(bad, parquet.BadRow)
    assert bad.message.startswith("Column odd: JSON has no word for")


def test_a_file_without_rows_is_refused(api: Api) -> None:
    empty = io.BytesIO()
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), empty)
    assert upload(api, empty.getvalue()).status_code == 422


@pytest.mark.parametrize("damage", ["cut", "junk", "start alone"])
def test_a_damaged_file_is_refused_with_a_sentence(api: Api, damage: str) -> None:
    whole = packed(ROWS)
    content = {"cut": whole[:-40], "junk": b"PAR1" + b"x" * 200 + b"PAR1", "start alone": b"PAR1"}
    answer = upload(api, content[damage])
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("This Parquet file cannot be read")


def test_no_change_of_bytes_breaks_more_than_the_upload() -> None:
    chance, whole = random.Random(3), packed(ROWS, compression="zstd")
    refused = 0
    for _ in range(8):
        changed = bytearray(whole)
        for _ in range(3):
            changed[chance.randrange(4, len(whole) - 8)] = chance.randrange(256)
        try:
            read(bytes(changed))
        except RefusedError as error:
            refused += 1
            assert "cannot be read" in error.detail
    assert refused


def test_a_reader_that_ends_by_itself_is_a_damaged_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ends_at_once.py").write_text("print('+{}', flush=True); import os; os.abort()")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(parquet, "READER", "ends_at_once")
    rows = parquet.rows_of_parquet(io.BytesIO(packed(ROWS)))
    assert next(rows) == b"{}"
    with pytest.raises(RefusedError, match="it is damaged"):
        next(rows)


def test_a_small_file_of_endless_text_is_refused() -> None:
    text = pa.array(["x" * 2**20]).dictionary_encode()
    many = pa.DictionaryArray.from_arrays(pa.array([0] * 600), text.dictionary)
    held = io.BytesIO()
    pq.write_table(pa.table({"prompt": many}), held, compression="zstd")
    assert len(held.getvalue()) < 10_000
    with pytest.raises(RefusedError, match="536,870,912 bytes"):
        for _ in parquet.rows_of_parquet(io.BytesIO(held.getvalue())):
            continue
