"""Asking for a backtest: which scheme, against what, on which stored trajectories."""

from typing import Any

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.rewards.scheme import RewardScheme as Definition
from webapp.accounts.models import Project, User
from webapp.experiments.models import DatasetVersion, Job, RewardSchemeVersion, Run
from webapp.experiments.services.jobs import start_job
from webapp.experiments.services.schemes import definition_digest
from webapp.problems import RefusedError, invalid_field

KIND = "backtest"
MOST_RUNS = 100


class Asked(BaseModel):
    """The spec of the job: everything that a backtest depends on, by id or as it was then."""

    model_config = ConfigDict(extra="forbid")

    definition: dict[str, Any]  # of the scheme that is tried
    # Of the scheme it is compared with; None: that which each run was launched with.
    against: dict[str, Any] | None = None
    against_name: str = ""
    runs: list[str] = []
    dataset_version: str = ""
    filter: dict[str, Any] = {}  # webapp.reviews.queries.Filter
    newest: int | None = Field(None, ge=1)  # of each run; None: all
    sources: list[str] = []  # names of what is read, as people know it


@transaction.atomic
def start_backtest(
    project: Project,
    user: User,
    definition: Definition,
    *,
    runs: list[Run] | None = None,
    dataset: DatasetVersion | None = None,
    against: RewardSchemeVersion | None = None,
    filter: dict[str, Any] | None = None,
    newest: int | None = None,
) -> Job:
    """Queue a backtest of a definition, whether it is stored as a version or not.

    Give runs or a version of a dataset of trajectories. Raises RefusedError.
    """
    _check_sources(runs or [], dataset, against)
    names = [f"run {run.name}" for run in runs or []]
    if dataset is not None:
        names = [f"dataset {dataset.dataset.name} version {dataset.number}"]
    number = f" version {against.number}" if against else ""
    asked = Asked(
        definition=definition.model_dump(mode="json"),
        against=against.definition if against else None,
        against_name=f"{against.scheme.name}{number}" if against else "",
        runs=[run.pk for run in runs or []],
        dataset_version=dataset.pk if dataset else "",
        filter=filter or {},
        newest=newest,
        sources=names,
    )
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return start_job(
        project,
        user,
        KIND,
        asked.model_dump(mode="json"),
        title=f"Backtest of {definition.name} on {names[0]}{more}",
        subject=definition_digest(definition),
    )


def _check_sources(
    runs: list[Run], dataset: DatasetVersion | None, against: RewardSchemeVersion | None
) -> None:
    if bool(runs) == (dataset is not None):
        raise invalid_field("runs", "Choose runs or a dataset whose trajectories are graded.")
    if len(runs) > MOST_RUNS:
        raise invalid_field("runs", f"{len(runs)} runs were given: choose {MOST_RUNS} at most.")
    if dataset is not None and dataset.dataset.kind != "trajectories":
        kind = dataset.dataset.kind
        raise invalid_field("dataset_version", f"This dataset holds {kind}, not trajectories.")
    if against is not None:
        _check(against.definition, f"version {against.number}")
        return
    if dataset is not None:
        raise invalid_field("against", "Choose a version to compare with: a dataset has none.")
    for run in runs:
        if not isinstance(run.spec.get("reward"), dict):
            raise invalid_field(
                "against", f"Run {run.name} has no reward scheme: choose one to compare with."
            )
        _check(run.spec["reward"], f"run {run.name}")


def _check(definition: dict[str, Any], whose: str) -> None:
    try:
        Definition.model_validate(definition)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RefusedError(
            f"The scheme of {whose} is of an older form ({detail}): compare with another one."
        ) from None
