"""Gives every request an id: the caller's X-Request-ID, or a new one, repeated in the answer."""

import re
import uuid
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from webapp import logs

GIVEN = re.compile(r"[\w.-]{8,40}")


@sync_and_async_middleware
def request_id(
    get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]],
) -> Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]:
    def enter(request: HttpRequest) -> str:
        given = request.headers.get("X-Request-ID", "")
        current = given if GIVEN.fullmatch(given) else uuid.uuid4().hex
        logs.request_id.set(current)
        return current

    if iscoroutinefunction(get_response):

        async def middle(request: HttpRequest) -> HttpResponse:
            current = enter(request)
            response: HttpResponse = await get_response(request)
            response["X-Request-ID"] = current
            return response

        return middle

    def middle_sync(request: HttpRequest) -> HttpResponse:
        current = enter(request)
        response: HttpResponse = get_response(request)  # type: ignore[assignment]
        response["X-Request-ID"] = current
        return response

    return middle_sync
