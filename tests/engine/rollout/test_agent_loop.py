"""The agent loop: what it records, how episodes end, and that one failure stays alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from engine.environments.protocol import Observation, Task
from engine.records.trajectory import StopReason, ToolCall, Trajectory
from engine.rewards import RewardCurriculum, RewardScheme, RewardTerm
from engine.rollout.agent_loop import AgentLoop
from engine.rollout.sampler import SampledTurn
from engine.spec import EnvironmentSpec

END = 0


class Letters:
    """One token a letter; 0 ends a turn, 1 opens and 2 follows what the environment wrote."""

    def encode_prompt(self, task: Task) -> list[int]:
        return [1, *task.prompt.encode(), 2]

    def encode_observation(self, text: str) -> list[int]:
        return [1, *text.encode(), 2]

    def decode_turn(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i != END).decode()

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        return [bytes([i]) for i in ids]


class Scripted:
    """A sampler that says what it was told to, one turn of every open sequence a step."""

    def __init__(self, turns: list[str], capacity: int = 4) -> None:
        self.capacity, self.version, self._turns = capacity, 7, turns
        self.open_sequences: dict[int, tuple[int, int]] = {}  # -> (turn, room)
        self.contexts: dict[int, list[int]] = {}
        self.opened = 0

    def open(self, ids: Sequence[int], copies: int, max_tokens: int, temperature: float):
        new = list(range(self.opened, self.opened + copies))
        self.opened += copies
        for sequence in new:
            self.contexts[sequence] = list(ids)
            self.open_sequences[sequence] = (0, max_tokens)
        assert len(self.open_sequences) <= self.capacity
        return new

    def extend(self, sequence: int, ids: Sequence[int], max_tokens: int) -> None:
        self.contexts[sequence] += ids
        turn, _ = self.open_sequences[sequence]
        self.open_sequences[sequence] = (turn + 1, max_tokens)

    def step(self) -> list[SampledTurn]:
        turns = []
        for sequence, (turn, room) in self.open_sequences.items():
            ids = [*self._turns[turn].encode(), END][:room]
            self.contexts[sequence] += ids
            logprobs = [-0.25 * (i + 1) for i in range(len(ids))]
            turns.append(
                SampledTurn(sequence, ids, logprobs, [self.version] * len(ids), ids[-1] == END)
            )
        return turns

    def close(self, sequence: int) -> None:
        del self.open_sequences[sequence]

    def load_weights(self, version: int, weights: Mapping[str, Any]) -> None:
        self.version = version


class Echo:
    """Says every turn back; `answer X` ends the episode, `break` raises."""

    def tools(self) -> list[dict[str, Any]]:
        return []

    def start(self, task: Task) -> "Echo":
        if task.prompt == "unplayable":
            raise OSError("no such world")
        return self

    def act(self, text: str) -> Observation:
        if text == "break":
            raise ZeroDivisionError("the tool divided by zero")
        if text.startswith("answer "):
            return Observation("", answer=text.removeprefix("answer "), stop=StopReason.ANSWERED)
        return Observation(f"<{text}>", call=ToolCall("c", "echo", {}, f"<{text}>", None, 0.0))


def make_task(prompt: str = "q") -> Task:
    return Task(id=prompt, category="1 hop", prompt=prompt, answer="right", hops=1)


def make_loop(turns: list[str], capacity: int = 4, **limits: int) -> AgentLoop:
    spec = EnvironmentSpec(**{"max_turn_tokens": 16, "max_tokens": 64, **limits})
    return AgentLoop(Scripted(turns, capacity), Echo(), Letters(), RewardScheme(), spec, "w")


def play(loop: AgentLoop) -> list[Trajectory]:
    finished = []
    while loop.active:
        finished += loop.step()
    return finished


def test_it_records_what_was_sampled_and_what_was_seen() -> None:
    loop = make_loop(["look", "answer right"])
    loop.submit(make_task(), "group", purpose="evaluate")
    (one,) = play(loop)
    (segment,) = one.segments
    expected = b"\x01q\x02" + b"look\x00" + b"\x01<look>\x02" + b"answer right\x00"
    assert bytes(segment.ids) == expected
    sampled = [False] * 3 + [True] * 5 + [False] * 8 + [True] * 13
    assert segment.loss_mask == sampled
    assert segment.versions == [7 if mask else -1 for mask in sampled]
    assert segment.logprobs[3:8] == [-0.25, -0.5, -0.75, -1.0, -1.25]
    assert not any(segment.logprobs[8:16])
    assert "".join(text for text in segment.texts if text) == expected.decode()
    assert [(step.start, step.stop) for step in one.steps] == [(3, 8), (16, 29)]
    assert one.steps[0].call is not None and one.steps[0].call.result == "<look>"
    assert (one.stop_reason, one.success, one.reward.value) == (StopReason.ANSWERED, True, 1.0)
    assert (one.group_id, one.purpose, one.worker, one.sampled_tokens) == (
        "group",
        "evaluate",
        "w",
        18,
    )


def test_a_wrong_answer_is_no_success() -> None:
    loop = make_loop(["answer left"])
    loop.submit(make_task(), "g")
    (one,) = play(loop)
    assert (one.stop_reason, one.success, one.reward.value) == (StopReason.ANSWERED, False, 0.0)


@pytest.mark.parametrize(
    ("turns", "limits", "reason"),
    [
        (["x" * 40], {}, StopReason.MAX_TURN_TOKENS),
        (["x" * 10] * 9, {}, StopReason.MAX_TOKENS),
        (["x" * 20, "x" * 20], {"max_turn_tokens": 48}, StopReason.MAX_TOKENS),
    ],
)
def test_over_long_output_ends_with_its_own_reason(turns, limits, reason: StopReason) -> None:
    loop = make_loop(turns, **limits)
    loop.submit(make_task(), "g")
    (one,) = play(loop)
    assert one.stop_reason is reason
    assert one.reward.value == 0.0
    assert len(one.segments[0].ids) <= 64


def test_a_prompt_without_room_for_a_turn_ends_at_once() -> None:
    loop = make_loop(["answer right"])
    loop.submit(make_task("p" * 70), "g")
    (one,) = play(loop)
    assert (one.stop_reason, one.steps) == (StopReason.MAX_TOKENS, [])


@pytest.mark.parametrize("prompt", ["q", "unplayable"])
def test_what_an_environment_raises_ends_that_episode_alone(prompt: str) -> None:
    loop = make_loop(["look", "break"])
    loop.submit(make_task(prompt), "g")
    (broken,) = play(loop)
    assert broken.stop_reason is StopReason.INFRA_ERROR
    assert not broken.reward.valid and broken.reward.value is None
    assert ("divided by zero" in broken.reward.problem) or (
        "no such world" in broken.reward.problem
    )
    loop.sampler._turns = ["answer right"]
    loop.submit(make_task(), "g2")
    (fine,) = play(loop)
    assert fine.success


def test_a_sampler_that_gives_up_is_no_fault_of_the_policy() -> None:
    loop = make_loop(["look"])
    loop.sampler.step = lambda: [SampledTurn(0, [], [], [], False, "The endpoint is gone")]
    loop.submit(make_task(), "g")
    (one,) = play(loop)
    assert one.stop_reason is StopReason.INFRA_ERROR
    assert one.reward.problem == "The endpoint is gone"


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_log_probabilities_that_are_none_are_the_samplers_fault(value: float) -> None:
    """They would make a ratio of nan or infinity of every token of the trajectory."""
    loop = make_loop(["look"])
    loop.sampler.step = lambda: [SampledTurn(0, [5], [value], [7], False)]
    loop.submit(make_task(), "g")
    (one,) = play(loop)
    assert one.stop_reason is StopReason.INFRA_ERROR
    assert "not finite" in one.reward.problem and one.sampled_tokens == 0


def test_groups_wait_until_all_their_copies_fit() -> None:
    loop = make_loop(["look", "answer right"], capacity=4)
    for number in range(3):
        loop.submit(make_task(), f"g{number}", copies=3)
    assert (loop.active, loop.free) == (9, 0)
    loop.step()
    assert len(loop.sampler.open_sequences) == 3
    finished = play(loop)
    assert sorted(one.group_id for one in finished) == sorted(
        f"g{n}" for n in range(3) for _ in "abc"
    )
    assert (loop.active, loop.free) == (0, 4)


def test_it_refuses_groups_that_can_never_fit() -> None:
    with pytest.raises(ValueError, match="5 copies"):
        make_loop([], capacity=4).submit(make_task(), "g", copies=5)


def test_cancelled_episodes_leave_nothing_behind() -> None:
    loop = make_loop(["look", "answer right"], capacity=4)
    for number in range(3):
        loop.submit(make_task(), f"g{number}", copies=2)
    loop.step()
    assert loop.cancel() == 6
    assert (loop.active, loop.sampler.open_sequences) == (0, {})
    loop.submit(make_task(), "after")
    assert [one.group_id for one in play(loop)] == ["after"]


def test_every_turn_has_its_part_of_the_reward() -> None:
    loop = make_loop(["look", "look again", "answer right"])
    loop.submit(make_task(), "g")
    (one,) = play(loop)
    assert [step.reward for step in one.steps] == [0.0, 0.0, 1.0]


def test_an_episode_that_takes_too_long_teaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("engine.rollout.agent_loop.time.monotonic", lambda: now[0])
    loop = make_loop(["look"] * 9, max_tokens=300, episode_timeout_s=10.0)
    loop.submit(make_task(), "g", copies=2)
    assert loop.step() == []
    now[0] = 10.0
    assert loop.step() == []
    now[0] = 10.1
    late = loop.step()
    assert [one.stop_reason for one in late] == [StopReason.TIMED_OUT] * 2
    assert all(one.trainable_reward is None and len(one.steps) == 3 for one in late)
    assert (loop.active, loop.sampler.open_sequences) == (0, {})


def test_a_group_is_graded_by_the_weight_it_was_started_with() -> None:
    scheme = RewardScheme(
        terms=[RewardTerm(kind="exact_answer"), RewardTerm(kind="format")],
        curriculum=RewardCurriculum(process=["format"]),
    )
    spec = EnvironmentSpec(max_turn_tokens=16, max_tokens=64)
    loop = AgentLoop(Scripted(["look", "answer right"]), Echo(), Letters(), scheme, spec)
    for weight in (0.0, 0.25, None):
        loop.submit(make_task(), str(weight), copies=2, process_weight=weight)
    played = play(loop)
    found = {(one.group_id, one.reward.process_weight) for one in played}
    assert found == {("0.0", 0.0), ("0.25", 0.25), ("None", 0.3)}
    for one in played:
        assert one.reward.value == pytest.approx(1.0 + (one.reward.process_weight or 0.0))
