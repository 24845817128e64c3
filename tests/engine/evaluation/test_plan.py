"""Which tasks an evaluation plays."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.environments.protocol import Task
from engine.evaluation.plan import EvaluationPlan, tasks_of


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


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30), st.data())
def test_a_place_names_one_task(hops: list[int], data: st.DataObject) -> None:
    tasks = [OfHops(index, one) for index, one in enumerate(hops)]
    place = data.draw(st.integers(0, len(hops) - 1))
    plan = EvaluationPlan("quick", 1, 0.0, position=place)
    assert plan.choose(tasks) == [tasks[place]]


def test_a_place_that_no_task_has_is_said() -> None:
    with pytest.raises(ValueError, match="no task at place 8 of quick: there are 8"):
        EvaluationPlan("quick", 1, 0.0, position=8).choose(TASKS)


def test_a_question_of_ones_own_is_played_instead() -> None:
    drawn = [Task("t1", "3 hops", "What?", "That", 3)]
    (own,) = tasks_of(EvaluationPlan("held_out", 1, 0.0, own=("Why?", "So")), drawn)
    assert (own.prompt, own.answer) == ("Why?", "So")
    assert tasks_of(EvaluationPlan("held_out", 1, 0.0), drawn) == drawn
