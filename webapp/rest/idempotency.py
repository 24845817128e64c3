"""Idempotency-Key: an unsafe call that is repeated gets the first one's answer, for a day.

The same key with the same credential returns the stored answer; with another request it is refused;
while the first call is running it is 409. Answers that a retry may change are not stored. Nor are
those that show a secret: a repeat of such a call is 409 and says what the first one made.
"""

import hashlib
from collections.abc import Callable
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from webapp.accounts.models import StoredAnswer
from webapp.problems import RefusedError, conflict
from webapp.rest.problem_json import problem

KEPT = timedelta(hours=24)
GIVEN_UP = timedelta(minutes=2)  # a call that has not ended by then died with its process
SAFE = ("GET", "HEAD", "OPTIONS")
NOT_STORED = (401, 403, 409, 429)


class AnsweredError(Exception):
    """Carries the stored answer out of the authentication."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__("answered before")
        self.response = response


def begin(request: HttpRequest, credential: str) -> None:
    """Note the key of an authenticated call. Raises AnsweredError or RefusedError for a repeat."""
    key = request.headers.get("Idempotency-Key", "")
    if request.method in SAFE or not key:
        return
    if len(key) > 200:
        raise RefusedError("An Idempotency-Key has at most 200 characters.", status=400)
    caller = hashlib.sha256(credential.encode()).hexdigest()
    answer = StoredAnswer(caller=caller, key=key, request=_digest(request))
    StoredAnswer.objects.filter(caller=caller, key=key).filter(
        created_at__lt=timezone.now() - KEPT
    ).delete()
    StoredAnswer.objects.filter(caller=caller, key=key, status=None).filter(
        created_at__lt=timezone.now() - GIVEN_UP
    ).delete()
    try:
        with transaction.atomic():
            answer.save()
    except IntegrityError:
        _repeat(StoredAnswer.objects.filter(caller=caller, key=key).first(), answer.request)
    request.stored_answer = answer  # type: ignore[attr-defined]


def shows_secret(request: HttpRequest, made: str, next_step: str) -> None:
    """Say so before an answer that nobody may read twice. `made`: the id of what it is about."""
    request.told_instead = (  # type: ignore[attr-defined]
        f"The first call with this Idempotency-Key made {made}; its secret is shown once and was "
        f"not kept. If you did not get it, {next_step}"
    )


def _digest(request: HttpRequest) -> str:
    """Of method, path and body; of an uploaded file, which is not read here, the length counts."""
    is_upload = (request.content_type or "").startswith("multipart/")
    body = str(request.headers.get("Content-Length")).encode() if is_upload else request.body
    return hashlib.sha256(
        f"{request.method} {request.get_full_path()}\n".encode() + body
    ).hexdigest()


def _repeat(stored: StoredAnswer | None, request: str) -> None:
    if stored is not None and stored.request != request:
        raise RefusedError("This Idempotency-Key was used for another request.")
    if stored is None or stored.status is None:
        raise conflict("The first call with this Idempotency-Key is running: try again shortly.")
    kind = "application/json" if stored.status < 400 else "application/problem+json"
    response = HttpResponse(bytes(stored.body), status=stored.status, content_type=kind)
    response["Idempotent-Replay"] = "true"
    raise AnsweredError(response)


def store_answers(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: keep the answer of a call that `begin` has noted."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        answer: StoredAnswer | None = getattr(request, "stored_answer", None)
        if answer is None:
            return response
        if response.streaming or response.status_code >= 500 or response.status_code in NOT_STORED:
            answer.delete()
        else:
            told = getattr(request, "told_instead", None)
            kept = problem(409, told) if told and response.status_code < 400 else response
            answer.status, answer.body = kept.status_code, kept.content
            answer.save(update_fields=["status", "body"])
        return response

    return middleware
