"""Reads of evaluations: those of a run and of the runs that judge its checkpoints, and two of them
compared trial by trial."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from engine.evaluation.comparison import Comparison, compare
from engine.evaluation.outcomes import Outcome
from engine.evaluation.report import Report
from webapp import storage
from webapp.experiments.models import Run
from webapp.experiments.tries import is_try
from webapp.monitoring.models import RunEvent
from webapp.problems import RefusedError, invalid_field

REPORT: TypeAdapter[Report] = TypeAdapter(Report)
MOST_BYTES = 256 * 2**20  # of a file with outcomes
OTHER_CODE = "This evaluation was written by other code, and cannot be read."
GONE = "The outcomes of this evaluation are not on the run's storage any more."


@dataclass(frozen=True)
class Evaluation:
    """Tasks played with frozen weights. `run` is the run that played them."""

    id: int
    run: Run
    attempt: int
    at: float
    tasks: str
    stage: int
    step: int
    trainer_step: int
    version: int
    trials: int
    temperature: float
    path: str
    report: Report
    demonstrations: dict[str, float]

    @property
    def is_scheduled(self) -> bool:
        """By training, not by a stage that judges."""
        stages = self.run.spec.get("stages", [])
        return not (self.stage < len(stages) and stages[self.stage].get("kind") == "evaluate")


def evaluations_of(run: Run) -> list[Evaluation]:
    """In the order in which they were made; what older code wrote is left out."""
    # In two queries: a condition over both tables would have all events of all runs looked at.
    judging = run.children.filter(spec__stages__1__kind="evaluate")
    found = judging.values_list("pk", "spec__stages__1")
    judges = [pk for pk, stage in found if not is_try(stage)]
    rows = EVENTS.filter(run__in=[run.pk, *judges]).order_by("at", "pk")
    return [one for row in rows if (one := read(row)) is not None]


def evaluation(row: RunEvent) -> Evaluation:
    """Raises RefusedError where other code wrote it."""
    found = read(row)
    if found is None:
        raise RefusedError(OTHER_CODE, status=410)
    return found


EVENTS = RunEvent.objects.filter(kind="evaluation").select_related(
    "attempt", "run__project", "run__checkpoint"
)


def compared(first: Evaluation, second: Evaluation) -> Comparison:
    """Raises RefusedError: outcomes that are gone (410), tasks that have nothing in common."""
    try:
        return compare(outcomes_of(first), outcomes_of(second))
    except ValueError:
        raise invalid_field(
            "second", "These two evaluations have no task in common: compare two of the same tasks."
        ) from None


def outcomes_of(one: Evaluation) -> list[Outcome]:
    """Raises RefusedError (410) where they are gone."""
    try:
        file, size = storage.open_run_file(one.run.pk, one.path)
    except FileNotFoundError:
        raise RefusedError(GONE, status=410) from None
    if size > MOST_BYTES:
        raise RefusedError(
            "The outcomes of this evaluation are too many to be compared.", status=413
        )
    with file:
        try:
            return [Outcome.from_dict(item) for item in json.load(file)["outcomes"]]
        except (ValueError, KeyError, TypeError):
            raise RefusedError(
                "The outcomes of this evaluation cannot be read.", status=410
            ) from None


def problem_of_report(report: dict[str, Any]) -> str:
    """What is wrong with a report that a driver sent; "" where nothing is."""
    try:
        REPORT.validate_python(report)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return ""


def read(row: RunEvent) -> Evaluation | None:
    """None where other code wrote it."""
    data = row.data
    try:
        report = REPORT.validate_python(data["report"])
        return Evaluation(
            id=row.pk,
            run=row.run,
            attempt=row.attempt.number,
            at=row.at,
            tasks=data["tasks"],
            stage=data["stage"],
            step=data["step"],
            trainer_step=data["trainer_step"],
            version=data["version"],
            trials=data["trials"],
            temperature=data["temperature"],
            path=data["path"],
            report=report,
            demonstrations=data["demonstrations"],
        )
    except (KeyError, ValidationError):
        return None
