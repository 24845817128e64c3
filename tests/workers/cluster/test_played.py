"""Played trajectories: whole on the storage, each task as often as it was asked for."""

import random

import pytest

from engine.environments.protocol import Task
from tests.engine.training.samples import make_trajectory
from workers.cluster.played import PER_OBJECT, Play, Played
from workers.cluster.storage import RunStorage

TASKS = [Task(f"t{n}", f"{1 + n % 3} hops", "?", "", 1 + n % 3) for n in range(30)]
WISH = Play("plays/stage-2", "practice", (1, 2), 12, 2, 1.0, "0 2")


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_trajectories_come_back_as_they_were_from_all_workers(tmp_path, scheme):
    place, rng = f"{scheme}{tmp_path}", random.Random(0)
    made = [make_trajectory(rng, f"g{n}") for n in range(PER_OBJECT + 5)]
    for part in range(2):
        played = Played(RunStorage(place), "plays/a", part)
        for one in made[part::2]:
            played.add(one)
        played.flush()
        played.flush()
    found = list(Played(RunStorage(place), "plays/a"))
    assert found == [*made[0::2], *made[1::2]]
    assert list(Played(RunStorage(place), "plays/b")) == []


def test_a_later_attempt_adds_to_what_an_earlier_one_left(tmp_path):
    storage, rng = RunStorage(str(tmp_path)), random.Random(0)
    for attempt in range(3):
        played = Played(storage, "plays")
        assert played.counts()["t"] == attempt
        played.add(make_trajectory(rng, "g"))
        played.flush()
    assert len(list(Played(storage, "plays"))) == 3


def test_the_workers_together_play_the_tasks_that_were_asked_for_once():
    parts = [WISH.chosen(TASKS, part, 3) for part in range(3)]
    together = [task for part in parts for task in part]
    assert len(together) == len({task.id for task in together}) == 12
    assert {task.hops for task in together} == {1, 2}
    assert WISH.chosen(TASKS, 0, 1) == WISH.chosen(list(TASKS), 0, 1)
    assert len(Play("f", "held_out", (3,), 99, 1, 1.0, "s").chosen(TASKS, 0, 1)) == 10


def test_practice_trains_whosever_tasks_it_plays_and_judging_does_not():
    of = {name: Play("f", name, None, 9, 1, 1.0, "s") for name in ("practice", "held_out", "ver_1")}
    assert {name: one.purpose for name, one in of.items()} == {
        "practice": "train", "held_out": "evaluate", "ver_1": "train",
    }  # fmt: skip
    assert len(of["ver_1"].chosen(TASKS, 0, 1)) == 9
