"""Reads of evaluations: those of a run and of the runs that judge its checkpoints, and two of them
compared trial by trial."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from sys import intern
from typing import Any

from django.db.models import Q
from pydantic import TypeAdapter, ValidationError

from engine.evaluation.comparison import Comparison, compare
from engine.evaluation.report import Report
from engine.evaluation.trials import Trials
from webapp.experiments.models import DatasetVersion, Run, StageDataset
from webapp.experiments.tries import is_try
from webapp.monitoring.models import RunEvent, TrialPart
from webapp.problems import RefusedError, invalid_field

REPORT: TypeAdapter[Report] = TypeAdapter(Report)
PARTS_AT_ONCE = 4  # of trials, in memory
OTHER_CODE = "This evaluation was written by other code, and cannot be read."
UNTOLD = "Not all trials of this evaluation were reported, so that its tasks are not known."


@dataclass(frozen=True)
class Evaluation:
    """Tasks played with frozen weights. `run` is the run that played them."""

    id: int
    run: Run
    attempt: int
    attempt_id: str
    at: float
    tasks: str
    stage: int
    step: int
    trainer_step: int
    version: int
    trials: int
    temperature: float
    path: str
    parts: int  # of its trials
    report: Report
    demonstrations: dict[str, float]
    dataset: DatasetVersion | None = None  # whose tasks were played; None: the run's own

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
    made = [one for row in rows if (one := read(row)) is not None]
    uses = StageDataset.objects.filter(run__in=[run.pk, *judges], stage=None)
    played = {one.run_id: one.version for one in uses.select_related("version__dataset")}
    return [replace(one, dataset=played.get(one.run.pk)) for one in made]


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
    """Raises RefusedError: trials that were not reported (409), tasks that have nothing in
    common."""
    try:
        return compare(trials_of(first), trials_of(second))
    except ValueError:
        raise invalid_field(
            "second", "These two evaluations have no task in common: compare two of the same tasks."
        ) from None


def trials_of(one: Evaluation, ids: bool = True) -> dict[str, Trials]:
    """By task, with the trajectories' ids or without. Raises RefusedError (409) where not all
    were reported."""
    ((_, found),) = trials_of_each([one], ids)
    if found is None:
        raise RefusedError(UNTOLD, status=409)
    return found


def trials_of_each(
    made: Sequence[Evaluation], ids: bool = False
) -> Iterator[tuple[Evaluation, dict[str, Trials] | None]]:
    """The trials of every evaluation, None where not all were reported; in any order.

    One query, and no more than a few parts of it in memory at a time.
    """
    untold = {(one.attempt_id, one.path): one for one in made}
    if not untold:
        return
    asked = Q()
    for attempt, path in untold:
        asked |= Q(attempt=attempt, path=path)
    rows = TrialPart.objects.filter(asked).order_by("attempt", "path", "part")
    if not ids:
        rows = rows.defer("trajectories")
    stored = rows.iterator(chunk_size=PARTS_AT_ONCE)
    for key, parts in groupby(stored, key=lambda part: (part.attempt_id, part.path)):
        one, told, found = untold.pop(key), 0, dict[str, Trials]()
        for part in parts:
            told += 1
            _add(found, part, part.trajectories if ids else [])
        yield one, found if told == one.parts else None
    for one in untold.values():
        yield one, None if one.parts else {}


def _add(found: dict[str, Trials], part: TrialPart, trajectories: Sequence[str]) -> None:
    begin = 0
    for task, category, of_task in zip(part.tasks, part.categories, part.results, strict=True):
        names = trajectories[begin : begin + len(of_task)]
        begin += len(of_task)
        if (held := found.get(task)) is not None:  # it goes on in this part
            of_task, names = held.results + of_task, [*held.trajectories, *names]
        found[task] = Trials(intern(category), intern(of_task), names)


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
            attempt_id=row.attempt_id,
            at=row.at,
            tasks=data["tasks"],
            stage=data["stage"],
            step=data["step"],
            trainer_step=data["trainer_step"],
            version=data["version"],
            trials=data["trials"],
            temperature=data["temperature"],
            path=data["path"],
            parts=data["parts"],
            report=report,
            demonstrations=data["demonstrations"],
        )
    except (KeyError, ValidationError):
        return None
