"""REST of evaluations: a run's, and two of them compared on the same tasks."""

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema

from webapp.accounts import access
from webapp.experiments import evaluations
from webapp.experiments.models import Run

router = Router(tags=["evaluations"])
Id = Annotated[int, Query(ge=0, lt=2**63, description="id of an evaluation")]


class EvaluationOut(Schema):
    """`run_id` is the run that played the tasks: this one, or one that judges its checkpoint."""

    id: int
    run_id: str
    attempt: int
    at: float  # seconds since 1970
    tasks: str
    stage: int
    step: int
    trainer_step: int
    version: int
    trials: int
    temperature: float
    report: dict[str, Any]
    demonstrations: dict[str, float]


@router.get("/runs/{run_id}/evaluations", response=list[EvaluationOut])
def list_evaluations(request: HttpRequest, run_id: str) -> Any:
    """Evaluations of a run and of its checkpoints, in the order in which they were made."""
    run = access.get(Run.objects.all(), run_id, access.actor_of(request))
    return [
        {**vars(one), "run_id": one.run.pk, "report": one.report.to_dict()}
        for one in evaluations.evaluations_of(run)
    ]


@router.get("/evaluations/compare", response=dict[str, Any])
def compare(request: HttpRequest, first: Id, second: Id) -> Any:
    """The gain of the second evaluation over the first on the tasks that both played, with its
    paired 95% interval, McNemar's p for single trials, and the tasks that flipped."""
    actor = access.actor_of(request)
    pair = [
        evaluations.evaluation(access.get(evaluations.EVENTS.all(), pk, actor))
        for pk in (first, second)
    ]
    return evaluations.compared(*pair).to_dict()
