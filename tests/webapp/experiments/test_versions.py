"""Versions of reward schemes and datasets never change; checkpoints are downloaded as listed."""

import json
from typing import Any

import pytest
import zstandard
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from tests.webapp.support import Api, Driver, downloaded
from webapp import storage
from webapp.experiments import services
from webapp.experiments.models import DatasetVersion, RewardSchemeVersion
from webapp.problems import RefusedError


def test_a_changed_scheme_is_a_new_version(api: Api) -> None:
    one = {"name": "mine", "terms": [{"kind": "exact_answer", "weight": 1.0}]}
    two = {"name": "mine", "terms": [{"kind": "exact_answer", "weight": 2.0}]}
    created = api("POST", "reward-schemes", {"definition": one})
    assert (created.status_code, created.json()["number"]) == (201, 1)
    assert api("POST", "reward-schemes", {"definition": one}).status_code == 409
    scheme = RewardSchemeVersion.objects.get().scheme_id
    path = f"reward-schemes/{scheme}/versions"
    assert api("POST", path, {"definition": one}).status_code == 409
    assert api("POST", path, {"definition": two}).json()["number"] == 2
    assert api("POST", path, {"definition": {**two, "terms": []}}).status_code == 422
    versions = api("GET", f"reward-schemes/{scheme}").json()["versions"]
    assert [v["number"] for v in versions] == [2, 1]
    assert versions[1]["definition"]["terms"][0]["weight"] == 1.0


def upload(api: Api, dataset: str, content: bytes) -> Any:
    file = SimpleUploadedFile("rows.jsonl", content)
    return api.client.post(
        f"/api/v1/datasets/{dataset}/versions",
        {"file": file, "note": "first"},
        headers={"Authorization": f"Bearer {api.token}"},
    )


@pytest.fixture
def dataset(api: Api) -> str:
    return str(api("POST", "datasets", {"name": "tasks", "kind": "tasks"}).json()["id"])


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"Question {n}? 问题", "answer": n, "category": f"{n % 2 + 2} hops", "x": [n]}
        for n in range(count)
    ]


def test_uploads_are_versions_of_rows(api: Api, dataset: str) -> None:
    content = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows(7)).encode()
    answer = upload(api, dataset, content + b"\n\n")
    assert answer.status_code == 201, answer.content
    assert (answer.json()["number"], answer.json()["rows"]) == (1, 7)
    assert answer.json()["categories"] == {"2 hops": 4, "3 hops": 3}
    path = f"datasets/{dataset}/versions/1"
    assert api("GET", f"{path}/rows?start=5&count=9").json() == rows(7)[5:]
    download = api("GET", f"{path}/file")
    assert download["Content-Disposition"].startswith("attachment;")
    assert download["X-Content-Type-Options"] == "nosniff"
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(downloaded(download))
    assert [json.loads(line) for line in plain.splitlines()] == rows(7)
    assert upload(api, dataset, content).json()["number"] == 2


def test_every_wrong_row_is_named_and_nothing_is_stored(api: Api, dataset: str) -> None:
    content = b"\n".join(
        [b'{"prompt": "a", "answer": "b"}', b"{", b'{"prompt": ""}', b"[]", b'{"answer": 1}']
    )
    answer = upload(api, dataset, content)
    assert answer.status_code == 422
    paths = {error["path"] for error in answer.json()["errors"]}
    assert paths >= {"rows.2", "rows.3.prompt", "rows.3.answer", "rows.4", "rows.5.prompt"}
    assert not DatasetVersion.objects.exists()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00"])
def test_a_file_without_rows_is_refused(api: Api, dataset: str, content: bytes) -> None:
    assert upload(api, dataset, content).status_code == 422


def test_names_are_taken_once_whatever_their_case(api: Api, dataset: str) -> None:
    answer = api("POST", "datasets", {"name": "TASKS", "kind": "tasks"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "name"


def test_checkpoints_are_downloaded_by_their_manifest(api: Api, driver: Driver) -> None:
    checkpoint = driver.run.checkpoints.create(
        attempt=driver.attempt,
        stage=1,
        step=1,
        policy_version=1,
        path="checkpoints/1",
        files={"model/weights.bin": {"size": 3}, "gone.bin": {"size": 1}},
        created_at=timezone.now(),
    )
    filesystem, root = storage._place()
    with filesystem.open(f"{root}/runs/{driver.run.pk}/checkpoints/1/model/weights.bin", "wb") as f:
        f.write(b"abc")
    with filesystem.open(f"{root}/runs/{driver.run.pk}/secret", "wb") as f:
        f.write(b"no")
    path = f"checkpoints/{checkpoint.pk}/files"
    answer = api("GET", f"{path}/model/weights.bin")
    assert downloaded(answer) == b"abc"
    assert answer["Content-Length"] == "3"
    assert answer["Content-Disposition"].startswith("attachment;")
    assert api("GET", f"{path}/gone.bin").status_code == 410
    for name in ("../../secret", "..%2F..%2Fsecret", "secret", "model/../../../secret"):
        assert api("GET", f"{path}/{name}").status_code == 404, name
    with pytest.raises(RefusedError):
        services.remove_checkpoint(_resuming_from(checkpoint), None)
    driver.run.attempts.filter(number=2).delete()
    assert api("DELETE", f"checkpoints/{checkpoint.pk}").status_code == 204
    assert api("GET", f"{path}/model/weights.bin").status_code == 410


def _resuming_from(checkpoint: Any) -> Any:
    checkpoint.run.attempts.create(number=2, resume_from=checkpoint)
    return checkpoint
