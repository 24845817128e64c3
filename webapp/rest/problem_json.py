"""Errors as application/problem+json (RFC 9457), with the field path of each thing wrong."""

import logging
import sys
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.template import loader
from django.views.defaults import page_not_found
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from webapp import logs
from webapp.problems import FieldProblem, RefusedError

logger = logging.getLogger(__name__)
DATABASE_ERRORS = (OperationalError, InterfaceError)  # away, starting, or too slow


def problem(
    status: int,
    detail: str,
    errors: list[FieldProblem] | None = None,
    headers: dict[str, str] | None = None,
) -> HttpResponse:
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": [{"path": item.path, "message": item.message} for item in errors or []],
        "request_id": logs.request_id.get(),
    }
    return JsonResponse(
        body, status=status, content_type="application/problem+json", headers=headers
    )


def answer_with_problems(api: NinjaAPI) -> None:
    """Make every error of an API a problem."""

    def refused(request: HttpRequest, error: Any) -> HttpResponse:
        return problem(error.status, error.detail, error.errors)

    def absent(request: HttpRequest, error: Any) -> HttpResponse:
        return problem(404, str(error) or "There is no such thing here.")

    def denied(request: HttpRequest, error: Any) -> HttpResponse:
        return problem(403, str(error) or "Your role does not allow this.")

    def unknown(request: HttpRequest, error: Any) -> HttpResponse:
        return problem(
            401,
            "Sign in, or send a token: `Authorization: Bearer cvn_...`.",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def malformed(request: HttpRequest, error: Any) -> HttpResponse:
        errors = [FieldProblem(_path(item["loc"]), item["msg"]) for item in error.errors]
        detail = "; ".join(f"{item.path}: {item.message}" for item in errors)
        return problem(422, detail, errors)

    def unstorable(request: HttpRequest, error: Any) -> HttpResponse:
        return problem(422, "A value cannot be stored: a text with a NUL or half a character.")

    def other(request: HttpRequest, error: Any) -> HttpResponse:
        # The framework wraps whatever a parser of bodies raises.
        if isinstance(error.__cause__, RefusedError):
            return refused(request, error.__cause__)
        if isinstance(error.__cause__, ValueError | RecursionError):
            return problem(error.status_code, f"The body is no JSON: {error.__cause__}")
        return problem(error.status_code, error.message)

    def misformed(request: HttpRequest, error: Any) -> HttpResponse:
        return problem(400, f"The body is no multipart form: {error}.")

    def bug(request: HttpRequest, error: Any) -> HttpResponse:
        logger.exception("%s %s failed", request.method, request.path)
        return _failure(error)

    api.add_exception_handler(RefusedError, refused)
    api.add_exception_handler(Http404, absent)
    api.add_exception_handler(PermissionDenied, denied)
    api.add_exception_handler(AuthenticationError, unknown)
    api.add_exception_handler(ValidationError, malformed)
    api.add_exception_handler(HttpError, other)
    api.add_exception_handler(DataError, unstorable)
    api.add_exception_handler(UnicodeEncodeError, unstorable)
    api.add_exception_handler(MultiPartParserError, misformed)
    api.add_exception_handler(Exception, bug)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler404: a problem below /api/, a page elsewhere."""
    if request.path.startswith("/api/"):
        return problem(404, "There is no such path in this API.")
    return page_not_found(request, exception)


def server_failed(request: HttpRequest) -> HttpResponse:
    """Django's handler500: a problem below /api/, a page elsewhere; 503 without a database."""
    failure = _failure(sys.exc_info()[1])
    if request.path.startswith("/api/"):
        return failure
    page = loader.get_template("500.html").render({"status": failure.status_code})
    return HttpResponse(page, status=failure.status_code, headers=_retry(failure.status_code))


def _failure(error: BaseException | None) -> HttpResponse:
    if isinstance(error, DATABASE_ERRORS):
        return problem(503, "The database does not answer: ask again soon.", headers=_retry(503))
    return problem(500, "Something went wrong on our side; the log has it by its request id.")


def _retry(status: int) -> dict[str, str]:
    return {"Retry-After": "2"} if status == 503 else {}


def _path(location: tuple[Any, ...]) -> str:
    """Where in the caller's input: without the part and the parameter that the framework adds."""
    parts = [str(part) for part in location]
    return ".".join(parts[2:] if parts[:1] == ["body"] and len(parts) > 2 else parts[1:])
