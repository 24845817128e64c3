"""REST of runs that people's own trainers report: they begin here and go on at ingest."""

from typing import Annotated, Any

from django.conf import settings
from django.http import HttpRequest
from ninja import Router, Schema, Status
from pydantic import Field

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.rest import idempotency

router = Router(tags=["external runs"])
Steps = Annotated[int, Field(ge=0, lt=2**31)]


class ExternalIn(Schema):
    """`config` is kept as it is; `steps` is how many there will be, 0 where nobody knows."""

    name: str = ""
    experiment: str = ""
    config: dict[str, Any] = {}
    steps: Steps = 0
    notes: str = ""
    tags: list[str] = []
    code_version: str = ""
    project: str | None = None


class Begun(Schema):
    """`token` is shown only now; with it the trainer reports to `ingest_url`."""

    run_id: str
    run_name: str
    attempt_id: str
    attempt_number: int
    token: str
    ingest_url: str
    heartbeat_s: int


@router.post("/external-runs", response={201: Begun})
def begin(request: HttpRequest, data: ExternalIn) -> Any:
    """A run of a trainer of your own; it is running from now on."""
    actor = access.actor_of(request)
    project = access.default_project(actor, data.project, Role.EDITOR)
    launch = services.Launch(
        experiment=data.experiment, name=data.name, notes=data.notes, tags=data.tags
    )
    begun = services.begin_external(
        project,
        actor.user,
        data.config,
        launch,
        steps=data.steps,
        code_version=data.code_version,
    )
    return Status(201, _shown(request, begun))


@router.post("/external-runs/{run_id}/attempts", response={201: Begun})
def restart(request: HttpRequest, run_id: str) -> Any:
    """The trainer was started again: a new attempt; the one before can report no more."""
    actor = access.actor_of(request)
    run = access.get(Run.objects.all(), run_id, actor, Role.EDITOR)
    return Status(201, _shown(request, services.restart_external(run.pk, actor.user)))


def _shown(request: HttpRequest, begun: services.Begun) -> dict[str, Any]:
    again = f"POST /api/v1/external-runs/{begun.run.pk}/attempts with a new key goes on with it."
    idempotency.shows_secret(request, f"{begun.run.pk}, attempt {begun.attempt.number}", again)
    return {
        "run_id": begun.run.pk,
        "run_name": begun.run.name,
        "attempt_id": begun.attempt.pk,
        "attempt_number": begun.attempt.number,
        "token": begun.token,
        "ingest_url": settings.CARAVAN_INGEST_URL,
        "heartbeat_s": services.HEARTBEAT_S,
    }
