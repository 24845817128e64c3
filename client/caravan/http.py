"""Calls to the REST API: one client with its token, errors as sentences, repeats where safe."""

import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from caravan import __version__
from caravan.access import Access, in_checkout, is_loopback
from caravan.errors import AccessError, Problem, RefusedError

API = "/api/v1"
PAGE = 200  # items of a list
TIMEOUT_S = 30.0
WAITS_S = (0.3, 1.0)  # before a call is tried again
LATER = (502, 503, 504)
MAX_PROBLEM_BYTES = 2**20


class Http:
    """Every method raises AccessError or RefusedError."""

    def __init__(self, access: Access) -> None:
        self.url = access.url
        self.authorization = f"Bearer {access.token}"  # for calls that are not HTTP
        self._client = httpx.Client(
            base_url=access.url,
            headers={
                "Authorization": self.authorization,
                "User-Agent": f"caravan/{__version__}",
            },
            timeout=httpx.Timeout(TIMEOUT_S, connect=5.0),
            trust_env=not is_loopback(access.url),
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **query: Any) -> Any:
        """The JSON that the API answers; queries that are None are left out."""
        return _json(self._send("GET", path, params=_given(query)))

    def paged(
        self, path: str, limit: int | None, query: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """The items of a list, all or up to `limit`, a page at a time."""
        cursor = None
        left = math.inf if limit is None else limit
        while left > 0:
            page = self.get(path, **query, cursor=cursor, limit=int(min(left, PAGE)))
            yield from page["items"]
            left -= len(page["items"])
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def post(self, path: str, data: Mapping[str, Any] | None = None, once: bool = True) -> Any:
        """Repeated after a lost answer: the Idempotency-Key makes it happen once.

        The server keeps such an answer for a day. One that holds a secret must not be kept: it is
        asked for with `once` False, and not repeated.
        """
        if not once:
            return _json(self._send("POST", path, tries=1, json=_plain(data)))
        return _json(self._send("POST", path, headers=_once(), json=_plain(data)))

    def upload(self, path: str, name: str, file: Any, fields: Mapping[str, str]) -> Any:
        """Post a file as multipart form data; not repeated."""
        parts = {"file": (name, file, "application/octet-stream")}
        answer = self._send("POST", path, tries=1, files=parts, data=dict(fields), timeout=600.0)
        return _json(answer)

    def patch(self, path: str, data: Mapping[str, Any]) -> Any:
        return _json(self._send("PATCH", path, headers=_once(), json=_plain(data)))

    def put(self, path: str, data: Mapping[str, Any]) -> Any:
        return _json(self._send("PUT", path, json=_plain(data)))

    def delete(self, path: str) -> None:
        """May take long: a run has millions of rows."""
        self._send("DELETE", path, headers=_once(), timeout=600.0)

    @contextmanager
    def download(self, path: str, **query: Any) -> Iterator[httpx.Response]:
        """An answer that is read piece by piece."""
        request = self._client.build_request("GET", API + path, params=_given(query))
        try:
            answer = self._client.send(request, stream=True)
            try:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(self.url, answer)
                yield answer
            finally:
                answer.close()
        except httpx.HTTPError as error:
            raise self._unreached(error) from error

    def _send(
        self, method: str, path: str, tries: int = len(WAITS_S) + 1, **arguments: Any
    ) -> httpx.Response:
        for tried in range(1, tries + 1):
            try:
                answer = self._client.request(method, API + path, **arguments)
            except httpx.HTTPError as error:
                if tried == tries or isinstance(error, httpx.UnsupportedProtocol):
                    raise self._unreached(error) from error
            else:
                if answer.is_success:
                    return answer
                if tried == tries or answer.status_code not in LATER:
                    raise _refusal(self.url, answer)
            time.sleep(WAITS_S[tried - 1])
        raise AssertionError("the last try returns or raises")

    def _unreached(self, error: httpx.HTTPError) -> AccessError:
        reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)).strip(". ") or type(error).__name__
        here = in_checkout() and is_loopback(self.url)
        hint = "`./caravan up` starts it." if here else "does it run there?"
        return AccessError(f"Caravan at {self.url} is not reached ({reason}): {hint}")


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in query.items() if value is not None}


def _plain(data: Mapping[str, Any] | None) -> Any:
    """Data as JSON has it: what it has no word for becomes text."""
    text = json.dumps(dict(data or {}), default=str)
    return json.loads(text, parse_constant=str)


def _once() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def _json(answer: httpx.Response) -> Any:
    if answer.status_code == 204:
        return None
    try:
        return answer.json()
    except ValueError as error:
        raise AccessError(f"{answer.url} answers something that is not Caravan's.") from error


def _refusal(url: str, answer: httpx.Response) -> AccessError | RefusedError:
    """The error for an answer that is none of success."""
    problem = _problem(answer)
    detail = str(problem.get("detail") or problem.get("title") or "").strip()
    if answer.status_code == 401:
        return AccessError(
            f"{url} does not know this token: make one on the Team page and `caravan login {url}`."
        )
    if answer.status_code == 403:
        return AccessError(detail or f"{url} does not allow this.")
    if not problem or answer.status_code >= 500 or answer.is_redirect:
        said = f"{url} answers {answer.status_code}" + (f": {detail}" if detail else ".")
        request = problem.get("request_id")
        return AccessError(f"{said} (request {request})" if request else said)
    found = tuple(
        Problem(str(item.get("path", "")), str(item.get("message", "")))
        for item in problem.get("errors") or ()
        if isinstance(item, dict)
    )
    return RefusedError(detail or f"refused with {answer.status_code}", found, answer.status_code)


def _problem(answer: httpx.Response) -> dict[str, Any]:
    """The problem+json of an answer; empty where it has none."""
    if len(answer.content) > MAX_PROBLEM_BYTES:
        return {}
    try:
        found = json.loads(answer.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
