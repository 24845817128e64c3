"""What is told of running episodes: from the first turn on, each once, few at a time, cuts said."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.environments.protocol import Task
from engine.records.events import MAX_PLAYING, MAX_PUBLISHED_CHARS
from engine.records.trajectory import Reward, Step, StopReason, ToolCall, Trajectory
from engine.rollout.agent_loop import Running
from engine.telemetry.spool import Spool
from workers.cluster import watching
from workers.cluster.watching import EpisodePublisher


class Time:
    value = 0.0

    def __call__(self) -> float:
        return self.value


def step(index: int, text: str = "look", result: str = "found") -> Step:
    call = ToolCall(f"c{index}", "lookup", {"n": index}, result, None, 0.5)
    return Step(index, 0, 10 * index, 10 * index + 4, text, call)


def running(name: str, turns: int = 0) -> Running:
    task = Task(f"task-{name}", f"Where is {name}?", "here", "3 hops", 3)
    steps = [step(index) for index in range(turns)]
    return Running(name, task, "train", "2026-01-01T00:00:00+00:00", 4 * turns, steps)


def finished(one: Running, reward: float | None = 1.0) -> Trajectory:
    return Trajectory(
        id=one.id, task_id=one.task.id, group_id="g", category="3 hops", prompt="?", answer="here",
        segments=[], steps=list(one.steps), stop_reason=StopReason.ANSWERED,
        reward=Reward(reward, reward is not None), success=bool(reward), worker="w",
        started_at=one.started_at, duration_s=1.0, sampled_tokens=one.tokens,
    )  # fmt: skip


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, "rollout-0")


def told(spool: Spool, kind: str) -> list[dict[str, Any]]:
    lines = [line for path in spool.sealed() for line in path.read_bytes().splitlines()]
    return [item for item in map(json.loads, lines) if item["kind"] == kind]


def turns_of(spool: Spool, name: str) -> list[int]:
    return [
        number
        for item in told(spool, "turns")
        if item["episode"]["trajectory"] == name
        for number in range(item["first"], item["first"] + len(item["turns"]))
    ]


def test_every_turn_of_a_followed_episode_is_told_once_and_then_its_end(spool, time) -> None:
    publisher = EpisodePublisher(spool, 1, time)
    for turns in range(8):
        one = running("a", turns)
        publisher.look(lambda: [one])  # noqa: B023
        time.value += 0.7
    publisher.ended(finished(running("a", 9)))
    assert turns_of(spool, "a") == list(range(9))
    ends = [item["end"] for item in told(spool, "turns")]
    assert ends[:-1] == [None] * (len(ends) - 1)
    assert ends[-1] == {"reason": "answered", "reward": 1.0, "success": True}


def test_an_episode_shorter_than_any_interval_is_told_whole(spool, time) -> None:
    publisher = EpisodePublisher(spool, 1, time)
    publisher.look(lambda: [running("a")])
    publisher.ended(finished(running("a", 3), reward=None))
    assert turns_of(spool, "a") == [0, 1, 2]
    assert told(spool, "turns")[-1]["end"]["reward"] is None


def test_only_a_few_are_followed_and_all_are_counted(spool, time) -> None:
    publisher = EpisodePublisher(spool, 2, time)
    many = [running(f"e{n}", n % 3) for n in range(50)]
    for _ in range(30):
        publisher.look(lambda: many)
        time.value += 1.0
    newest = told(spool, "playing")[-1]
    assert newest["running"] == 50 and len(newest["rows"]) == MAX_PLAYING
    followed = {row["trajectory"] for row in newest["rows"] if row["followed"]}
    assert len(followed) == 2
    assert {item["episode"]["trajectory"] for item in told(spool, "turns")} == followed


def test_new_ones_are_taken_up_no_faster_than_the_interval(spool, time) -> None:
    publisher = EpisodePublisher(spool, 1, time)
    for n in range(100):  # ten a second
        one = running(f"e{n}", 1)
        publisher.look(lambda: [one])  # noqa: B023
        publisher.ended(finished(one))
        time.value += 0.1
    taken = {item["episode"]["trajectory"] for item in told(spool, "turns")}
    assert len(taken) == 2


def test_nothing_is_asked_for_where_nothing_is_due(spool, time) -> None:
    publisher = EpisodePublisher(spool, 1, time)
    asked = []
    for _ in range(100):
        publisher.look(lambda: asked.append(1) or [running("a")])
        time.value += 0.01
    assert len(asked) <= 2


def test_nothing_is_told_where_nobody_is_to_follow(spool, time) -> None:
    publisher = EpisodePublisher(spool, 0, time)
    publisher.look(lambda: pytest.fail("nobody asked"))
    publisher.ended(finished(running("a", 2)))
    assert not told(spool, "turns") and not told(spool, "playing")


def test_what_was_dropped_with_its_stage_has_an_end(spool, time) -> None:
    publisher = EpisodePublisher(spool, 1, time)
    publisher.look(lambda: [running("a", 1)])
    time.value += 2.0
    publisher.look(list)
    assert told(spool, "turns")[-1]["end"] == {"reason": "dropped", "reward": None, "success": None}
    time.value += 5.0
    publisher.look(list)
    assert told(spool, "playing")[-1]["rows"] == []


def test_what_runs_in_short_bursts_is_listed_as_it_begins(spool, time) -> None:
    publisher = EpisodePublisher(spool, 1, time)
    for _ in range(40):  # idle, and looked at all the while
        publisher.look(list)
        time.value += 0.5
    publisher.look(lambda: [running("a")])
    assert [row["trajectory"] for row in told(spool, "playing")[-1]["rows"]] == ["a"]


def test_long_texts_are_cut_and_their_sizes_said(spool, time) -> None:
    publisher = EpisodePublisher(spool, 1, time)
    one = running("a")
    long = Running(
        one.id, one.task, one.purpose, one.started_at, 4, [step(0, "x" * 9999, "é" * 5000)]
    )
    publisher.look(lambda: [long])
    (turn,) = told(spool, "turns")[-1]["turns"]
    assert (len(turn["text"]), len(turn["result"])) == (MAX_PUBLISHED_CHARS, MAX_PUBLISHED_CHARS)
    assert turn["more"] == {"text": 9999, "result": 5000}


def test_a_burst_of_turns_is_cut_at_its_beginning_which_shows(spool, time) -> None:
    publisher = EpisodePublisher(spool, 1, time)
    publisher.look(lambda: [running("a", 500)])
    assert turns_of(spool, "a") == list(range(500 - watching._TURNS_AT_ONCE, 500))
