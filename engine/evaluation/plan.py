"""Which tasks an evaluation plays, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


class HasHops(Protocol):
    @property
    def hops(self) -> int: ...


Task = TypeVar("Task", bound=HasHops)


@dataclass(frozen=True)
class EvaluationPlan:
    """`tasks`: held_out or quick; `prefix`: of the series that its figures are reported in."""

    tasks: str
    trials: int
    temperature: float
    hops: tuple[int, ...] | None = None
    number: int | None = None
    prefix: str = "eval/"

    def choose(self, tasks: Sequence[Task]) -> list[Task]:
        """The first `number` of the tasks of these numbers of hops, in equal parts per number.

        Where one number of hops has too few tasks for its part, the others fill it up.
        """
        wanted = [one for one in tasks if self.hops is None or one.hops in self.hops]
        place: dict[int, int] = {}
        ranked = []
        for one in wanted:
            place[one.hops] = place.get(one.hops, 0) + 1
            ranked.append((place[one.hops], one.hops, one))
        ranked.sort(key=lambda rank: rank[:2])
        chosen = {id(rank[2]) for rank in ranked[: self.number]}
        return [one for one in wanted if id(one) in chosen]
