"""Who calls the API: a bearer token, or a browser's session with its CSRF token."""

from django.http import HttpRequest
from ninja.security import HttpBearer
from ninja.security import SessionAuth as NinjaSessionAuth

from webapp.accounts.access import Actor, for_request
from webapp.accounts.credentials import find_api_token
from webapp.rest import idempotency


class BearerAuth(HttpBearer):
    openapi_bearerFormat = "cvn_..."  # noqa: N815  (the specification's spelling)

    def authenticate(self, request: HttpRequest, token: str) -> Actor | None:
        found = find_api_token(token)
        if found is None:
            return None
        request.user = found.user
        return _entered(request, Actor(found.user, found), token)


class SessionAuth(NinjaSessionAuth):
    def authenticate(self, request: HttpRequest, key: str | None) -> Actor | None:
        if not request.user.is_authenticated:
            return None
        return _entered(request, Actor(request.user), key or "")


def _entered(request: HttpRequest, actor: Actor, credential: str) -> Actor:
    actor = for_request(actor, request)
    request.actor = actor  # type: ignore[attr-defined]
    idempotency.begin(request, credential)
    return actor
