"""REST of experiments: a question, its notes, its pinned baseline."""

from datetime import datetime
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema, Status

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import lists, services
from webapp.experiments.models import Experiment, Run
from webapp.rest.etags import check_match, etag_of, tagged
from webapp.rest.schemas import Cursor, Label, Limit, NamePart, Person, ProjectRef

router = Router(tags=["experiments"])


class ExperimentOut(Schema):
    id: str
    name: str
    notes: str
    project: ProjectRef
    baseline_id: str | None
    archived_at: datetime | None
    created_by: Person | None
    created_at: datetime


class ExperimentRow(ExperimentOut):
    run_count: int
    active_count: int
    last_run_at: datetime | None


class ExperimentPage(Schema):
    items: list[ExperimentRow]
    next_cursor: str | None


class ExperimentIn(Schema):
    name: Label
    notes: str = ""
    project: str | None = None


class ExperimentPatch(Schema):
    name: str | None = None
    notes: str | None = None
    baseline: str | None = None  # id of a run of this experiment; empty: no baseline
    archived: bool | None = None


@router.get("/experiments", response=ExperimentPage)
def list_experiments(
    request: HttpRequest,
    project: str | None = None,
    q: NamePart = "",
    archived: bool = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Any:
    """Experiments of my projects, those with the newest run first."""
    actor = access.actor_of(request)
    wanted = access.project_or_all(actor, project)
    return lists.list_experiments(actor, wanted, q, archived, cursor, limit)


@router.post("/experiments", response={201: ExperimentOut})
def create_experiment(request: HttpRequest, data: ExperimentIn) -> Any:
    actor = access.actor_of(request)
    project = access.default_project(actor, data.project, Role.EDITOR)
    return Status(201, services.create_experiment(project, actor.user, data.name, data.notes))


@router.get("/experiments/{experiment_id}", response=ExperimentOut)
def get_experiment(request: HttpRequest, response: HttpResponse, experiment_id: str) -> Any:
    experiment = _experiment(request, experiment_id)
    tagged(response, _tag(experiment))
    return experiment


@router.patch("/experiments/{experiment_id}", response=ExperimentOut)
def edit_experiment(
    request: HttpRequest, response: HttpResponse, experiment_id: str, data: ExperimentPatch
) -> Any:
    _experiment(request, experiment_id, Role.EDITOR)
    actor = access.actor_of(request)
    baseline: Run | None | str = ""
    if data.baseline is not None:
        baseline = access.get(Run.objects.all(), data.baseline, actor) if data.baseline else None
    with transaction.atomic():
        experiment = Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)
        check_match(request, _tag(experiment))
        services.edit_experiment(
            experiment_id, actor.user, name=data.name, notes=data.notes, baseline=baseline
        )
        if data.archived is not None:
            services.archive_experiment(experiment_id, actor.user, data.archived)
    return get_experiment(request, response, experiment_id)


@router.delete("/experiments/{experiment_id}", response={204: None})
def delete_experiment(request: HttpRequest, experiment_id: str) -> Any:
    """Remove an experiment without runs; one that has some is archived instead."""
    _experiment(request, experiment_id, Role.EDITOR)
    services.delete_experiment(experiment_id, access.actor_of(request).user)
    return Status(204, None)


def _experiment(request: HttpRequest, pk: str, role: Role = Role.VIEWER) -> Experiment:
    rows = Experiment.objects.select_related("project", "created_by")
    return access.get(rows, pk, access.actor_of(request), role)


def _tag(experiment: Experiment) -> str:
    return etag_of(experiment.name, experiment.notes, experiment.baseline_id)
