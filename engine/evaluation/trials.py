"""What the trials of each task came to, in little: all that two evaluations are compared by."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.evaluation.outcomes import Outcome
from engine.records.events import MAX_TRIALS_OF_PART

SOLVED, FAILED, NOT_RATED = "1", "0", "x"


@dataclass(frozen=True, slots=True)
class Trials:
    """Of one task. `results` has a character for each trial, `trajectories` an id, or it is empty
    where the ids are not needed."""

    category: str
    results: str
    trajectories: Sequence[str] = ()

    @property
    def rated(self) -> int:
        return len(self.results) - self.results.count(NOT_RATED)

    @property
    def rate(self) -> float:
        """Raises ZeroDivisionError where no trial is rated."""
        return self.results.count(SOLVED) / self.rated

    def example(self, success: bool) -> str:
        """The trajectory of the first rated trial that ended so, else of the first rated one; ""
        where the ids were not read."""
        if not self.trajectories:
            return ""
        place = self.results.find(SOLVED if success else FAILED)
        if place < 0:
            place = self.results.find(FAILED if success else SOLVED)
        return self.trajectories[place]


ByTask = Mapping[str, Trials]


def trials(outcomes: Sequence[Outcome]) -> dict[str, Trials]:
    """By task, in the order of their ids; the trials of each in their order."""
    found: dict[str, list[Outcome]] = {}
    for one in sorted(outcomes, key=lambda one: (one.task_id, one.trial)):
        found.setdefault(one.task_id, []).append(one)
    return {
        task: Trials(
            of_task[0].category,
            "".join(_result(one) for one in of_task),
            [one.trajectory for one in of_task],
        )
        for task, of_task in found.items()
    }


def parts(by_task: ByTask) -> Iterator[list[dict[str, object]]]:
    """The rows of `engine.records.events.TrialRows`, cut so that no part has too many trials."""
    rows: list[dict[str, object]] = []
    held = 0
    for task, of_task in by_task.items():
        if held and held + len(of_task.results) > MAX_TRIALS_OF_PART:
            yield rows
            rows, held = [], 0
        row = {"task": task, "category": of_task.category, "results": of_task.results}
        rows.append({**row, "trajectories": list(of_task.trajectories)})
        held += len(of_task.results)
    if rows:
        yield rows


def _result(one: Outcome) -> str:
    if not one.valid:
        return NOT_RATED
    return SOLVED if one.success else FAILED
