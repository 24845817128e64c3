"""Files are named by ids and keys of a manifest: no spelling of a path leads anywhere else."""

from urllib.parse import quote

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from tests.webapp.support import Driver, downloaded
from webapp import storage

SPELLINGS = [
    "../secret",
    "../../secret",
    "..%2fsecret",
    "..%252fsecret",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..;/secret",
    ".../secret",
    "....//secret",
    "..\\secret",
    "..%5csecret",
    "..%255csecret",
    "%c0%ae%c0%ae/secret",
    "./../secret",
    "a/../../secret",
    "/etc/passwd",
    "//etc/passwd",
    "%2fetc%2fpasswd",
    "/proc/self/environ",
    "file:///etc/passwd",
    "file:/etc/passwd",
    "http://169.254.169.254/latest/meta-data",
    "http://127.0.0.1:1/",
    "ftp://example.com/x",
    "config.json?/../secret",
    "config.json#/../secret",
    "config.json;/../secret",
    "config.json%00.txt",
    "config.json/../secret",
    "~/secret",
    "${HOME}/secret",
    "C:\\secret",
]


@pytest.fixture
def checkpoint(driver: Driver) -> str:
    storage.write_run_file(driver.run.pk, "checkpoints/1/config.json", b'{"plain": true}')
    storage.write_run_file(driver.run.pk, "secret", b"SECRET")
    made = driver.run.checkpoints.create(
        attempt=driver.attempt, stage=1, step=1, policy_version=1, path="checkpoints/1",
        files={"config.json": {"size": 15, "sha256": "0" * 64}}, created_at=timezone.now(),
    )  # fmt: skip
    return str(made.pk)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("encode", [str, lambda text: quote(text, safe="")], ids=["raw", "quoted"])
def test_no_spelling_of_a_path_reads_another_file(
    page: Client, checkpoint: str, spelling: str, encode: object
) -> None:
    path = encode(spelling)  # type: ignore[operator]
    answer = page.get(f"/api/v1/checkpoints/{checkpoint}/files/{path}")
    if answer.status_code == 200:  # a query or fragment after the name of a file that is there
        assert downloaded(answer) == b'{"plain": true}'
        assert spelling.startswith("config.json")
    else:
        assert answer.status_code in (404, 410, 422), answer.content
        assert b"SECRET" not in answer.content
        assert str(settings.CARAVAN_STORAGE).encode() not in answer.content


def test_downloads_are_never_shown(page: Client, checkpoint: str) -> None:
    answer = page.get(f"/api/v1/checkpoints/{checkpoint}/files/config.json")
    assert answer.status_code == 200
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Disposition"].startswith("attachment")
