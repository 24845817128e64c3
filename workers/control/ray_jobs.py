"""Ray's job API over HTTP, each call with a time limit."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings

TIMEOUT_S = 10.0
SUBMIT_TIMEOUT_S = 30.0  # the head starts a supervisor process before it answers
JOB_ENVIRONMENT = {
    "RAY_JOB_STOP_WAIT_TIME_S": "10",  # between SIGTERM and SIGKILL: the driver still reports
    # Without it a kernel compiled for each shape of a batch is kept: gigabytes after an hour.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32",
}


class RayUnreachableError(Exception):
    """The job API did not answer, or cannot now: the same call may work later."""


@dataclass(frozen=True)
class Job:
    """What Ray says of a job; `status` is None where it knows nothing of it."""

    status: str | None
    message: str = ""

    @property
    def is_live(self) -> bool:
        return self.status in ("PENDING", "RUNNING")


def submit(submission_id: str, attempt_id: str, ticket: str) -> None:
    """Start the driver of an attempt as a Ray job.

    The ticket works once and for minutes; the token that it buys is in no argument, environment
    or runtime_env. Raises RayUnreachableError; ValueError where Ray refuses the job for good.
    """
    driver = "python -m workers.cluster.driver"
    body = {
        "submission_id": submission_id,
        "entrypoint": (
            f"{driver} --ingest {settings.CARAVAN_INGEST_URL} "
            f"--attempt {attempt_id} --ticket={ticket}"  # which may begin with a dash
        ),
        "metadata": {"attempt": attempt_id},
        "runtime_env": {"env_vars": JOB_ENVIRONMENT},
    }
    try:
        _call("POST", "/api/jobs/", body, SUBMIT_TIMEOUT_S)
    except RayUnreachableError:
        # The answer may be what was lost: a job that is there was submitted.
        if status(submission_id).status is None:
            raise


def status(submission_id: str) -> Job:
    """Raises RayUnreachableError."""
    if not submission_id:  # never submitted; by no name Ray would list all jobs
        return Job(None)
    answer = _call("GET", f"/api/jobs/{submission_id}", None, TIMEOUT_S, unknown_is_none=True)
    if answer is None:
        return Job(None)
    return Job(str(answer["status"]), _gist(str(answer.get("message") or "")))


def stop(submission_id: str) -> None:
    """End a job: SIGTERM, then SIGKILL. An unknown or ended one is no error."""
    if not submission_id:
        return
    _call("POST", f"/api/jobs/{submission_id}/stop", None, TIMEOUT_S, unknown_is_none=True)


def _call(
    method: str,
    path: str,
    body: dict[str, Any] | None,
    timeout_s: float,
    unknown_is_none: bool = False,
) -> dict[str, Any] | None:
    url = os.environ.get("CARAVAN_RAY_JOBS_URL", "").rstrip("/")
    if not url:
        raise RayUnreachableError("CARAVAN_RAY_JOBS_URL, the address of Ray's job API, is not set")
    try:
        answer = httpx.request(
            method, url + path, json=body, headers=_headers(), timeout=timeout_s, trust_env=False
        )
    except (httpx.HTTPError, OSError) as error:
        raise RayUnreachableError(f"Ray's job API at {url} was not reached: {error}") from error
    if answer.status_code == httpx.codes.NOT_FOUND and unknown_is_none:
        return None
    message = f"Ray answered {answer.status_code} to {method} {path}: {answer.text[:300]}"
    if answer.is_server_error or answer.status_code in (401, 403, 404, 429):
        raise RayUnreachableError(message)
    if not answer.is_success:
        raise ValueError(message)
    try:
        found: dict[str, Any] = answer.json()
    except ValueError as error:  # something else answers at its address
        raise RayUnreachableError(f"{message}, which is not JSON") from error
    return found


def _gist(message: str) -> str:
    """What Ray says of a job and the last line that the job wrote, without the log between."""
    said, *log = [line.strip() for line in message.splitlines() if line.strip()] or [""]
    said = said.partition(", last available logs")[0]
    return f"{said}; last written: {log[-1]}" if log else said


def _headers() -> dict[str, str]:
    """Ray's own token, where it asks for one."""
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return {"Authorization": f"Bearer {Path(path).read_text().strip()}"} if path else {}
