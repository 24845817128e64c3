"""The REST API, /api/v1/: one router for each area."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI

from webapp.accounts.api import router as accounts
from webapp.accounts.views_api import router as views
from webapp.accounts.webhook_api import router as webhooks
from webapp.experiments.api import router as experiments
from webapp.monitoring.api import router as monitoring
from webapp.rest.auth import BearerAuth, SessionAuth
from webapp.rest.idempotency import AnsweredError
from webapp.rest.problem_json import answer_with_problems
from webapp.reviews.api import router as trajectories
from webapp.reviews.episode_api import router as episodes
from webapp.reviews.export_api import router as exports
from webapp.reviews.inbox_api import router as inbox
from webapp.reviews.queue_api import router as queues
from webapp.reviews.search_api import router as search
from webapp.sweeps.api import router as sweeps

DESCRIPTION = """\
Errors are application/problem+json; `errors` names the path of each field that is wrong.
Lists are paged by `cursor`. Unsafe calls take an `Idempotency-Key`; PATCH takes `If-Match`.
NaN, Infinity and -Infinity travel as text.
"""

api = NinjaAPI(
    title="Caravan",
    version="1",
    description=DESCRIPTION,
    urls_namespace="api",
    auth=[BearerAuth(), SessionAuth()],
    docs_url=None,
    openapi_url=None,
)
answer_with_problems(api)


@api.exception_handler(AnsweredError)
def answered_before(request: HttpRequest, error: AnsweredError) -> HttpResponse:
    return error.response


@api.get("/openapi.json", response=dict[str, Any], tags=["schema"])
def openapi(request: HttpRequest) -> Any:
    """This document."""
    return api.get_openapi_schema(path_prefix="/api/v1/")


for area in (
    accounts, webhooks, views, experiments, monitoring, trajectories, episodes, queues,
    search, inbox, sweeps, exports,
):  # fmt: skip
    api.add_router("", area)
