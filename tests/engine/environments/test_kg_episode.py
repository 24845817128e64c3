"""Episodes: what the agent sees, what ends them, and that they never see each other."""

import dataclasses
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.environments.kg_search import KgSearch, KnowledgeGraph
from engine.environments.kg_search.calls import CallError, Lookup, render_answer, render_lookup
from engine.environments.protocol import Environment, Observation, Task
from engine.pool.group import pack
from engine.records.shards import read_trajectory, write_shard
from engine.records.trajectory import Step, StopReason
from engine.spec import EnvironmentSpec
from tests.engine.pool.samples import trajectory

GRAPH = KnowledgeGraph(
    kinds={"Lyon": "city", "France": "country", "Euro": "currency", "CDG": "airport"},
    facts={
        "Lyon": {"country": ("France",), "airport": ("LYS", "LYN")},
        "France": {"currency": ("Euro",)},
    },
)
TASK = Task("t", "2 hops", """What is "Lyon"'s country's currency?""", "Euro", 2)


def environment(**limits: Any) -> KgSearch:
    return KgSearch(GRAPH, EnvironmentSpec(**limits))


def test_it_is_an_environment() -> None:
    offered: Environment = environment()
    assert offered.tools()[0]["type"] == "function"


def test_a_right_episode_ends_with_its_answer() -> None:
    episode = environment().start(TASK)
    first = episode.act(render_lookup("Lyon", "country"))
    assert first.text == '{"value":"France"}'
    assert first.call is not None and first.call.error is None and first.stop is None
    assert first.call.arguments == {"entity": "Lyon", "relation": "country"}
    assert first.call.result == first.text and first.call.duration_s >= 0
    second = episode.act(render_lookup("France", "currency"))
    assert [first.call.call_id, second.call and second.call.call_id] == ["call_1", "call_2"]
    last = episode.act(render_answer("Euro"))
    assert last == Observation("", None, "Euro", StopReason.ANSWERED)
    with pytest.raises(RuntimeError, match="over"):
        episode.act(render_answer("Euro"))


@pytest.mark.parametrize(
    ("turn", "code"),
    [
        ("{", "invalid_json"),
        ("[1]", "not_an_object"),
        ('{"tool":"rm"}', "unknown_tool"),
        ('{"tool":"lookup","entity":"Lyon"}', "invalid_arguments"),
        (render_lookup("Lion", "country"), "unknown_entity"),
        (render_lookup("Lyon", "capital"), "no_such_relation"),
    ],
)
def test_an_error_is_told_with_its_call_id_and_the_episode_goes_on(turn: str, code: str) -> None:
    episode = environment().start(TASK)
    seen = episode.act(turn)
    assert seen.stop is None and seen.call is not None
    assert json.loads(seen.text)["error"] == code == seen.call.error
    assert seen.call.call_id == "call_1"
    assert episode.act(render_answer("Euro")).stop is StopReason.ANSWERED


def test_an_endless_loop_ends() -> None:
    episode = environment(repeated_call_limit=3).start(TASK)
    call = render_lookup("Lyon", "country")
    spaced = call.replace(",", " , ")  # the same call, written differently
    assert [episode.act(turn).stop for turn in (call, spaced, call)] == [
        None,
        None,
        StopReason.REPEATED_CALL,
    ]


def test_two_calls_in_turn_are_no_repetition_but_too_many_end() -> None:
    episode = environment(max_calls=4).start(TASK)
    turns = [render_lookup("Lyon", "country"), render_lookup("France", "currency")] * 2
    assert all(episode.act(turn).stop is None for turn in turns)
    last = episode.act(turns[0])
    assert last.stop is StopReason.MAX_CALLS
    assert last.call is not None and last.call.error == "max_calls" and last.call.result == ""


def test_it_answers_after_the_last_call_it_may_make() -> None:
    episode = environment(max_calls=1).start(TASK)
    episode.act(render_lookup("Lyon", "country"))
    assert episode.act(render_answer("France")).answer == "France"


def test_malformed_calls_in_a_row_end_it_and_a_right_one_in_between_forgives() -> None:
    episode = environment(invalid_call_limit=2, max_calls=20).start(TASK)
    assert episode.act("a").stop is None
    assert episode.act(render_lookup("Lyon", "country")).stop is None
    assert episode.act("b").stop is None
    last = episode.act("c")
    assert last.stop is StopReason.INVALID_CALLS and last.text == ""


def test_a_long_result_is_cut_with_a_marker() -> None:
    seen = environment(max_result_chars=20).start(TASK).act(render_lookup("Lyon", "airport"))
    assert seen.text == '{"values":["LYS","LY [cut: 20 of 24 bytes]'


def test_a_tool_that_hangs_is_given_up_and_the_next_call_works() -> None:
    release = threading.Event()

    class Slow(KgSearch):
        def _read(self, call: Lookup) -> str:
            if call.entity == "slow":
                release.wait(60)
            return super()._read(call)

    episode = Slow(GRAPH, EnvironmentSpec(call_timeout_s=1.0)).start(TASK)
    seen = episode.act(render_lookup("slow", "country"))
    assert seen.call is not None and seen.call.error == "timeout" and seen.stop is None
    assert episode.act(render_lookup("Lyon", "country")).text == '{"value":"France"}'
    release.set()


def test_a_broken_tool_ends_the_episode_without_blaming_the_policy() -> None:
    class Broken(KgSearch):
        def _read(self, call: Lookup) -> str:
            raise ZeroDivisionError("bug")

    seen = Broken(GRAPH, EnvironmentSpec()).start(TASK).act(render_lookup("Lyon", "country"))
    assert seen.stop is StopReason.INFRA_ERROR and not seen.stop.is_policy
    assert seen.call is not None and seen.call.error == "tool_failed"


turns = st.sampled_from(
    [
        render_lookup("Lyon", "country"),
        render_lookup("France", "currency"),
        render_lookup("Lion", "country"),
        render_answer("Euro"),
        "{",
        "[]",
    ]
)


def _play(episode: Any, turn: str) -> Observation | None:
    try:
        seen: Observation = episode.act(turn)
    except RuntimeError:
        return None
    if seen.call is None:
        return seen
    return dataclasses.replace(seen, call=dataclasses.replace(seen.call, duration_s=0.0))


@given(st.lists(turns), st.lists(turns), st.randoms())
def test_two_interleaved_episodes_equal_two_run_alone(
    left: list[str], right: list[str], order: Any
) -> None:
    shared = environment(max_calls=5)
    alone = []
    for script in (left, right):
        episode = shared.start(TASK)
        alone.append([_play(episode, turn) for turn in script])
    episodes = (shared.start(TASK), shared.start(TASK))
    together: tuple[list[Any], list[Any]] = ([], [])
    whose = [0] * len(left) + [1] * len(right)
    order.shuffle(whose)
    scripts = (iter(left), iter(right))
    for one in whose:
        together[one].append(_play(episodes[one], next(scripts[one])))
    assert list(together) == alone


@given(st.text())
def test_whatever_the_policy_writes_it_returns(turn: str) -> None:
    seen = environment().start(TASK).act(turn)
    assert (seen.stop is None) == bool(seen.text)
    if seen.text:
        json.loads(seen.text)


def test_its_lookup_raises_typed_errors_alone() -> None:
    with pytest.raises(CallError):
        environment().lookup(Lookup("nowhere", "country"))


@pytest.mark.parametrize(
    "turn",
    [
        '{"answer":NaN}',
        '{"tool":"lookup","entity":1e999,"relation":"country"}',
        '{"tool":"x","a":' + "[" * 480 + "]" * 480 + "}",
        '{"answer":"\\ud800"}',
        '{"answer":"\\u0000"}',
    ],
)
def test_whatever_a_policy_writes_the_pool_and_the_shards_can_hold(turn: str) -> None:
    seen = environment().start(TASK).act(turn)
    kept = trajectory()
    kept.steps = [Step(0, 0, 1, 3, turn, seen.call, seen.answer)]
    assert pack(1, 0, [kept], 0.0).trajectories() == [kept]
    assert read_trajectory(write_shard([kept])[0]) == kept
