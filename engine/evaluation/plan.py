"""Which tasks an evaluation plays, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from engine.environments import protocol as environment

OWN_QUESTION = "own question"  # id and category of the task


class HasHops(Protocol):
    @property
    def hops(self) -> int: ...


Task = TypeVar("Task", bound=HasHops)


@dataclass(frozen=True)
class EvaluationPlan:
    """`tasks`: held_out or quick; `position`: of the only one that is played; `own`: a question and
    its answer that are played instead; `prefix`: of the series that its figures are reported in."""

    tasks: str
    trials: int
    temperature: float
    hops: tuple[int, ...] | None = None
    number: int | None = None
    prefix: str = "eval/"
    position: int | None = None
    own: tuple[str, str] | None = None

    def choose(self, tasks: Sequence[Task]) -> list[Task]:
        """The first `number` of the tasks of these numbers of hops, in equal parts per number.

        Where one number of hops has too few tasks for its part, the others fill it up.

        Raises ValueError where none is at `position`.
        """
        if self.position is not None:
            if self.position >= len(tasks):
                raise ValueError(
                    f"There is no task at place {self.position} of {self.tasks}: there are "
                    f"{len(tasks)}."
                )
            return [tasks[self.position]]
        wanted = [one for one in tasks if self.hops is None or one.hops in self.hops]
        place: dict[int, int] = {}
        ranked = []
        for one in wanted:
            place[one.hops] = place.get(one.hops, 0) + 1
            ranked.append((place[one.hops], one.hops, one))
        ranked.sort(key=lambda rank: rank[:2])
        chosen = {id(rank[2]) for rank in ranked[: self.number]}
        return [one for one in wanted if id(one) in chosen]


def tasks_of(plan: EvaluationPlan, tasks: Sequence[environment.Task]) -> list[environment.Task]:
    """What is played: those that the plan chooses, or its own question."""
    if plan.own is None:
        return plan.choose(tasks)
    question, answer = plan.own
    return [environment.Task(OWN_QUESTION, OWN_QUESTION, question, answer, hops=0)]
