"""The calls to ingest. One object per process; may be used from several threads."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import zstandard

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_COMPRESS_FROM = 2_000  # bytes; below, the header costs more than it saves


class IngestError(Exception):
    """Ingest was not reached, or cannot answer now: the same call may work later."""


class RevokedError(Exception):
    """This attempt may not write any more: the run ended, or a newer attempt runs."""


class RefusedError(Exception):
    """The call itself is at fault; it will never work. `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Connection:
    """Bearer-authenticated calls to one ingest server.

    Every method raises IngestError, RevokedError or RefusedError, and nothing takes longer than
    its timeout in seconds.
    """

    def __init__(self, url: str, token: str = "", timeout_s: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
            # A proxy of the environment must not come between this machine and itself.
            trust_env=urlsplit(url).hostname not in _LOOPBACK,
        )
        self.token = token

    def close(self) -> None:
        self._client.close()

    def redeem(self, attempt: str, ticket: str, code_version: str = "") -> dict[str, Any]:
        """Trade the one-time ticket for the attempt's token, kept for the other calls, and spec."""
        given = {"attempt": attempt, "ticket": ticket, "code_version": code_version}
        answer = self._post("tickets/redeem", given)
        self.token = answer["token"]
        return answer

    def heartbeat(self, phase: str, stage: int, step: int) -> dict[str, Any]:
        return self._post("heartbeat", {"phase": phase, "stage": stage, "step": step})

    def events(self, lines: list[bytes]) -> dict[str, Any]:
        """Send events that are JSON already, one each."""
        return self._post_bytes("events", b'{"items":[' + b",".join(lines) + b"]}")

    def devices(self, item: dict[str, Any]) -> dict[str, Any]:
        return self._post("devices", {"items": [item]})

    def blob(self, sha256: str, data: bytes) -> None:
        self._request("PUT", f"blobs/{sha256}", data, {})

    def dataset(self, version: str, target: Path) -> None:
        """Write the rows of a dataset version that the run's spec names to a file, as they come:
        zstd-compressed JSON lines."""
        path = f"datasets/{version}"
        try:
            with self._client.stream("GET", self._url(path), headers=self._headers({})) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _problem(path, answer)
                with target.open("wb") as file:
                    file.writelines(answer.iter_bytes())
        except httpx.HTTPError as error:
            raise IngestError(f"{self.url} was not reached: {error}") from error

    def finish(self, state: str, reason: str, summary: dict[str, Any]) -> None:
        self._post("finish", {"state": state, "reason": reason, "summary": summary})

    def _post(self, path: str, data: dict[str, Any]) -> dict[str, Any]:
        return self._post_bytes(path, json.dumps(data, allow_nan=False).encode())

    def _post_bytes(self, path: str, body: bytes) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if len(body) >= _COMPRESS_FROM:
            body = zstandard.ZstdCompressor(level=3).compress(body)
            headers["Content-Encoding"] = "zstd"
        answer = self._request("POST", path, body, headers)
        try:
            found = answer.json()
        except ValueError as error:
            raise IngestError(f"{self.url} answered something that is not JSON.") from error
        return found if isinstance(found, dict) else {}

    def _request(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> httpx.Response:
        try:
            answer = self._client.request(
                method, self._url(path), content=body, headers=self._headers(headers)
            )
        except httpx.HTTPError as error:
            raise IngestError(f"{self.url} was not reached: {error}") from error
        if answer.is_success:
            return answer
        raise _problem(path, answer)

    def _url(self, path: str) -> str:
        return f"{self.url}/ingest/v1/{path}"

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        return {**headers, "Authorization": f"Bearer {self.token}"} if self.token else headers


def _problem(path: str, answer: httpx.Response) -> Exception:
    """What an answer that is no success means for the caller."""
    message = f"{path}: {answer.status_code} {_detail(answer)}"
    if answer.status_code == httpx.codes.CONFLICT:
        return RevokedError(message)
    # An unknown token may be a proxy's or a restored database's doing: the web tier can delay
    # what a live run reports, it cannot stop the run.
    later = (401, 403, 404, 408, 425, 429)
    if answer.status_code in later or answer.status_code >= 500:
        return IngestError(message)
    return RefusedError(answer.status_code, message)


def _detail(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
        return str(problem.get("detail") or problem.get("title") or "")[:500]
    except (ValueError, AttributeError):
        return answer.text[:200]
