"""The end of an attempt, as its driver reports it."""

from typing import Any

from django.db import transaction

from webapp.experiments import services
from webapp.monitoring.ingest.heartbeat import steps_before
from webapp.monitoring.ingest.storing import locked_by_token
from webapp.plain_text import storable_json


@transaction.atomic
def finish(token: str, state: str, reason: str, summary: dict[str, Any]) -> None:
    """Raises RefusedError: 401 for an unknown token, 409 for a revoked one."""
    run, attempt = locked_by_token(token)
    if last := attempt.stages.order_by("-index").first():  # steps since the last heartbeat
        run.step = max(run.step, steps_before(run, last.index) + last.step)
    services.finish(run, attempt, state, storable_json(reason), storable_json(summary))
