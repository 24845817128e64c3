"""Which tasks an evaluation plays."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.plan import EvaluationPlan


@dataclass(frozen=True)
class OfHops:
    id: int
    hops: int


TASKS = [OfHops(n, 3) for n in range(6)] + [OfHops(n, 4) for n in range(6, 8)]


def chosen(hops: tuple[int, ...] | None = None, number: int | None = None) -> list[int]:
    return [one.id for one in EvaluationPlan("quick", 1, 0.0, hops, number).choose(TASKS)]


def test_a_number_of_tasks_is_in_equal_parts_and_in_their_order() -> None:
    assert chosen() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert chosen(number=4) == [0, 1, 6, 7]
    assert chosen(number=3) == [0, 1, 6]
    assert chosen(number=6) == [0, 1, 2, 3, 6, 7], "what one lacks, the others fill up"
    assert chosen(hops=(4,)) == [6, 7]
    assert chosen(hops=(3,), number=2) == [0, 1]


@given(st.lists(st.integers(1, 4), max_size=30), st.integers(1, 40))
def test_it_never_plays_a_task_twice_nor_more_than_asked(hops: list[int], number: int) -> None:
    tasks = [OfHops(index, one) for index, one in enumerate(hops)]
    found = EvaluationPlan("quick", 1, 0.0, None, number).choose(tasks)
    assert len(found) == min(number, len(tasks))
    assert len({one.id for one in found}) == len(found)
