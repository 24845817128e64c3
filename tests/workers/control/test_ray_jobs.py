"""The job API of a real Ray: submitted once, looked at, ended, and its failures told apart."""

import argparse
import shlex
import time
from collections.abc import Iterator

import httpx
import pytest

from workers.control import ray_jobs
from workers.local.ports import free_port
from workers.local.scratch import scratch_stack

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def ray() -> Iterator[dict[str, str]]:
    with scratch_stack(only=("ray-head",)) as stack:
        yield {
            "CARAVAN_RAY_JOBS_URL": stack.layout.ray_jobs_url,
            "RAY_AUTH_TOKEN_PATH": stack.layout.ray_token,
        }


@pytest.fixture
def jobs(ray: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ray.items():
        monkeypatch.setenv(name, value)


def ended(submission_id: str) -> ray_jobs.Job:
    deadline = time.monotonic() + 120
    while (job := ray_jobs.status(submission_id)).is_live:
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    return job


def test_a_driver_without_a_server_fails_and_says_so(
    jobs: None, monkeypatch: pytest.MonkeyPatch, settings: object
) -> None:
    settings.CARAVAN_INGEST_URL = f"http://127.0.0.1:{free_port(set())}"  # type: ignore[attr-defined]
    ray_jobs.submit("try-1", "att_nothing", "ticket")
    assert ray_jobs.status("try-1").is_live
    ray_jobs.stop("try-1")
    job = ended("try-1")
    assert job.status in ("STOPPED", "FAILED")
    ray_jobs.stop("try-1")


def test_a_ticket_may_begin_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, object]] = []
    monkeypatch.setattr(ray_jobs, "_call", lambda method, path, body, *_: sent.append(body))
    ray_jobs.submit("try-3", "att_nothing", "-a-ticket")
    parser = argparse.ArgumentParser()
    for name in ("--ingest", "--attempt", "--ticket"):
        parser.add_argument(name)
    _, _, _, *arguments = shlex.split(str(sent[0]["entrypoint"]))  # python -m module
    assert parser.parse_args(arguments).ticket == "-a-ticket"


def test_what_a_job_wrote_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "Job entrypoint command failed with exit code 2, last available logs (truncated to 20,000 "
        "chars):\nRunning entrypoint: driver --ticket=secret\ndriver: error: no such thing\n"
    )
    monkeypatch.setattr(ray_jobs, "_call", lambda *_, **__: {"status": "FAILED", "message": said})
    assert ray_jobs.status("any").message == (
        "Job entrypoint command failed with exit code 2; last written: driver: error: no such thing"
    )


def test_a_job_without_a_name_was_never_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray lists all jobs to whoever asks for one of no name."""
    monkeypatch.setattr(ray_jobs, "_call", lambda *_, **__: [{"status": "RUNNING"}])
    assert ray_jobs.status("") == ray_jobs.Job(None)


def test_what_is_not_json_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARAVAN_RAY_JOBS_URL", "http://127.0.0.1:1")
    page = httpx.Response(200, text="<html>Log in</html>")
    monkeypatch.setattr(httpx, "request", lambda *_, **__: page)
    with pytest.raises(ray_jobs.RayUnreachableError, match="not JSON"):
        ray_jobs.status("try-1")


def test_it_refuses_a_second_job_of_one_name(jobs: None) -> None:
    ray_jobs.submit("try-2", "att_nothing", "ticket")
    with pytest.raises((ValueError, ray_jobs.RayUnreachableError)):
        ray_jobs._call("POST", "/api/jobs/", {"submission_id": "try-2", "entrypoint": "true"}, 30)
    ray_jobs.stop("try-2")
    ended("try-2")


def test_a_job_that_ray_does_not_know_is_no_error(jobs: None) -> None:
    assert ray_jobs.status("nothing") == ray_jobs.Job(None)
    ray_jobs.stop("nothing")


def test_ray_that_is_away_is_unreachable(jobs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARAVAN_RAY_JOBS_URL", f"http://127.0.0.1:{free_port(set())}")
    with pytest.raises(ray_jobs.RayUnreachableError, match="was not reached"):
        ray_jobs.status("try-1")
    monkeypatch.delenv("CARAVAN_RAY_JOBS_URL")
    with pytest.raises(ray_jobs.RayUnreachableError, match="is not set"):
        ray_jobs.status("try-1")


def test_a_wrong_token_is_no_word_about_a_job(
    jobs: None, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    wrong = tmp_path / "token"  # type: ignore[operator]
    wrong.write_text("wrong")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(wrong))
    with pytest.raises(ray_jobs.RayUnreachableError):
        ray_jobs.status("try-1")
