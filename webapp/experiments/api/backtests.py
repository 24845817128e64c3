"""REST of backtests: ask for one. Its progress and result are those of the job."""

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Schema, Status
from pydantic import Field

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import services
from webapp.experiments.api.jobs import JobDetailOut
from webapp.experiments.models import DatasetVersion, RewardSchemeVersion, Run
from webapp.experiments.services.schemes import check_definition
from webapp.problems import invalid_field
from webapp.reviews.queries import Filter

router = Router(tags=["reward schemes"])
VERSIONS = RewardSchemeVersion.objects.select_related("scheme__project")
Newest = Annotated[int, Field(ge=1)]


class BacktestIn(Schema):
    """`scheme_version` is a stored version; `definition` is one that is not stored, or not yet.

    `runs`, or `dataset_version` of a dataset of trajectories, say what is graded; `filter` and
    `newest` (of each run) narrow runs. `against` is a stored version; without it each run's own.
    """

    project: str | None = None
    scheme_version: str | None = None
    definition: dict[str, Any] | None = None
    against: str | None = None
    runs: list[str] = []
    dataset_version: str | None = None
    filter: Filter = Filter()
    newest: Newest | None = None


@router.post("/backtests", response={202: JobDetailOut})
def start_backtest(request: HttpRequest, data: BacktestIn) -> Any:
    """Grade stored trajectories with a scheme: a job of kind `backtest`."""
    actor = access.actor_of(request)
    if (data.scheme_version is None) == (data.definition is None):
        raise invalid_field("scheme_version", "Give either scheme_version or definition.")
    if data.scheme_version is not None and data.project is None:
        project = access.get(VERSIONS, data.scheme_version, actor, Role.EDITOR).scheme.project
    else:
        project = access.default_project(actor, data.project, Role.EDITOR)
    stored = VERSIONS.filter(scheme__project=project)
    given = data.definition or {}
    if data.scheme_version is not None:
        given = access.get(stored, data.scheme_version, actor).definition
    definition = check_definition(given)
    runs = Run.objects.filter(project=project)
    versions = DatasetVersion.objects.filter(dataset__project=project).select_related("dataset")
    job = services.start_backtest(
        project,
        actor.user,
        definition,
        runs=[access.get(runs, run, actor) for run in dict.fromkeys(data.runs)],
        dataset=access.get(versions, data.dataset_version, actor) if data.dataset_version else None,
        against=access.get(stored, data.against, actor) if data.against else None,
        filter=data.filter.model_dump(mode="json", exclude_none=True),
        newest=data.newest,
    )
    return Status(202, job)
