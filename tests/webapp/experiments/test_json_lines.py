"""Uploads of JSON lines as programs and editors write them, and as nobody should."""

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tests.webapp.support import Api
from webapp.experiments.models import Dataset, DatasetVersion
from webapp.experiments.services import datasets

ROW = b'{"prompt": "a", "answer": "b"}'


def upload(api: Api, content: bytes) -> Any:
    made = api("POST", "datasets", {"name": f"set {Dataset.objects.count()}", "kind": "tasks"})
    return api.client.post(
        f"/api/v1/datasets/{made.json()['id']}/versions",
        {"file": SimpleUploadedFile("rows.jsonl", content)},
        headers={"Authorization": f"Bearer {api.token}"},
    )


@pytest.mark.parametrize(
    "content",
    [
        ROW + b"\n" + ROW,
        ROW + b"\r\n" + ROW + b"\r\n",
        b"\xef\xbb\xbf" + ROW + b"\n" + ROW + b"\n",
        b"\n" + ROW + b"\n  \n" + ROW + b"\n\n",
    ],
    ids=["no line end", "CRLF", "BOM", "blank lines"],
)
def test_it_is_stored_the_same_however_it_is_written(api: Api, content: bytes) -> None:
    assert upload(api, content).json()["rows"] == 2
    assert upload(api, ROW + b"\n" + ROW + b"\n").status_code == 201
    first, second = DatasetVersion.objects.all()
    assert first.blob == second.blob


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW.decode().encode("utf-16"), "no UTF-8: byte 1 is 0xff. Save the file as UTF-8."),
        ('{"prompt": "é", "answer": 1}'.encode("latin-1"), "no UTF-8: byte 13 is 0xe9"),
        (b'{"prompt": "a", "answer": NaN}', "NaN is no finite number"),
        (b'{"prompt": "a", "answer": [1, -Infinity]}', "-Infinity is no finite number"),
        (b'{"prompt": "a", "answer": 1e999}', "1e999 is no finite number"),
        (b'{"prompt": "a", "answer": ' + b"[" * 10**5, "no JSON: maximum recursion"),
        (b'[{"prompt": "a", "answer": "b"}]', "valid dictionary"),
        (b"prompt,answer", "no JSON: Expecting value"),
    ],
)
def test_it_names_the_row_that_is_wrong(api: Api, row: bytes, said: str) -> None:
    answer = upload(api, ROW + b"\n" + row)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "1 problem was found; nothing was stored."
    (problem,) = answer.json()["errors"]
    assert problem["path"] == "rows.2" and said in problem["message"]
    assert not DatasetVersion.objects.exists()


def test_a_row_that_is_too_long_is_named_and_never_held(api: Api, monkeypatch: Any) -> None:
    monkeypatch.setattr(datasets, "MAX_ROW_BYTES", len(ROW))
    assert upload(api, ROW + b"\n" + ROW).status_code == 201
    answer = upload(api, ROW + b"\n" + ROW[:-1] + b" " * 100 + b"}\n" + ROW + b"\n")
    (problem,) = answer.json()["errors"]
    assert problem["path"] == "rows.2"
    assert problem["message"].startswith(f"The row has {len(ROW) + 101} bytes")
