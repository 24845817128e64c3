"""Public faults of samplers, agent loops, rewards and teachers, each held against our own code.

The first line of each test names where the fault was reported.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from engine.algorithms.batch import collate
from engine.algorithms.distillation import divergence
from engine.algorithms.returns import place_outcomes
from engine.environments.protocol import Observation, Task
from engine.records.trajectory import StopReason, ToolCall, Trajectory
from engine.rewards.scheme import RewardScheme, RewardTerm
from engine.rewards.score import give_reward
from engine.rollout.agent_loop import AgentLoop
from engine.rollout.torch_sampler import TorchSampler
from engine.spec import EnvironmentSpec, RlStage
from engine.spec.loading import problems_of
from engine.training.credit import credit
from engine.training.reinforcement import rl_step
from engine.training.rl_batch import gather
from tests.conformance.algorithms.exact import begun, make_groups, trajectory_of
from tests.engine.training.samples import make_trainer

END = 0


class Ambiguous:
    """Every letter has several tokens, so that text encoded once more is other ids."""

    def encode_prompt(self, task: Task) -> list[int]:
        return self._encode(task.prompt)

    def encode_observation(self, text: str) -> list[int]:
        return self._encode(text)

    def decode_turn(self, ids: Sequence[int]) -> str:
        return "".join("abc"[i % 3] for i in ids if i != END)

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        return [b"abc"[i % 3 : i % 3 + 1] for i in ids]

    def _encode(self, text: str) -> list[int]:
        return [3 + "abc".index(letter) for letter in text]


class Oracle:
    """A tool that writes the right answer, b, into the context; the policy's own is its turn."""

    def __init__(self) -> None:
        self.turns = 0

    def tools(self) -> list[dict[str, Any]]:
        return []

    def start(self, task: Task) -> "Oracle":
        return Oracle()

    def act(self, text: str) -> Observation:
        self.turns += 1
        if self.turns == 2:
            return Observation("", answer=text, stop=StopReason.ANSWERED)
        return Observation("b", call=ToolCall("c", "ask", {}, "b", None, 0.0))


class Heard(TorchSampler):
    """Remembers what it sampled, by sequence, and what it was told."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.contexts: dict[int, list[int]] = {}
        self.sampled: dict[int, list[int]] = {}

    def open(self, ids: Sequence[int], *args: Any) -> list[int]:
        opened = super().open(ids, *args)
        for sequence in opened:
            self.contexts[sequence], self.sampled[sequence] = list(ids), []
        return opened

    def extend(self, sequence: int, ids: Sequence[int], max_tokens: int) -> None:
        self.contexts[sequence] += ids
        super().extend(sequence, ids, max_tokens)

    def step(self) -> Any:
        turns = super().step()
        for turn in turns:
            self.contexts[turn.sequence] += turn.ids
            self.sampled[turn.sequence] += turn.ids
        return turns


@pytest.fixture
def single() -> Iterator[None]:
    """The sampler keeps its states in float32."""
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float64)


def played(temperature: float = 1.0) -> tuple[Heard, list[Trajectory]]:
    model = copy.deepcopy(make_trainer().model).float()
    sampler = Heard(model, end_id=END, capacity=8, max_tokens=256, seed=0)
    limits = EnvironmentSpec(max_turn_tokens=100, max_tokens=256)
    loop = AgentLoop(sampler, Oracle(), Ambiguous(), RewardScheme(), limits)
    loop.submit(Task("t", "1 hop", "ab", "b", 1), "g", copies=8, temperature=temperature)
    finished = []
    while loop.active:
        finished += loop.step()
    return sampler, finished


@pytest.mark.usefixtures("single")
def test_the_ids_that_are_trained_on_are_the_samplers() -> None:
    """TRL PRs 5242 and 5330: history was encoded once more between turns, and ids drifted."""
    sampler, finished = played()
    assert any(len(one.steps) > 1 for one in finished)
    found = gather([finished])
    contexts = sorted(tuple(ids) for ids in sampler.contexts.values())
    assert contexts == sorted(tuple(one.segments[0].ids) for one in finished)
    trained = [
        [
            i
            for i, sampled in zip(one.segments[0].ids, one.segments[0].loss_mask, strict=True)
            if sampled
        ]
        for one in finished
    ]
    assert sorted(trained) == sorted(sampler.sampled.values())
    if found is not None:
        assert set(found.batch.ids[found.batch.loss_mask].tolist()) <= {
            i for ids in sampler.sampled.values() for i in ids
        }


@pytest.mark.usefixtures("single")
@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_equal_weights_have_a_ratio_of_one_at_any_temperature(temperature: float) -> None:
    """TRL 4159, PRs 4163 and 4873, AReaL PR 581: the sampler's log-probs lacked the temperature."""
    _, finished = played(temperature)
    batch = collate([one.segments[0] for one in finished])
    trainer = begun("grpo")
    current = trainer.logprobs(batch, [0] * len(batch), temperature)
    difference = (current - batch.behaviour)[batch.loss_mask]
    assert float(difference.abs().max()) < 1e-4
    if temperature != 1:
        other = trainer.logprobs(batch, [0] * len(batch), 1.0)
        assert float((other - batch.behaviour)[batch.loss_mask].abs().max()) > 0.1


@pytest.mark.usefixtures("single")
def test_what_a_tool_wrote_earns_nothing() -> None:
    """verl 6392: tool text reached the reward function; here each tool call answers rightly."""
    _, finished = played()
    answered = [one for one in finished if one.stop_reason is StopReason.ANSWERED]
    wrong = [one for one in answered if one.steps[-1].answer != "b"]
    assert wrong and all(one.reward.value == 0 for one in wrong)


def test_the_reward_stands_on_the_last_sampled_token() -> None:
    """verl 6392 and miles 1827: a reward on a tool's token was masked away with it."""
    for mask in ([False, True, True], [False, True, True, False, False]):
        one = trajectory_of(mask, 1.0)
        found = gather([[one]])
        assert found is not None
        stage = RlStage(algorithm="ppo", gamma=0.5)
        values = torch.zeros(found.batch.ids.shape)
        returns = credit(found, [[one]], stage, values=values).returns
        assert returns is not None
        assert returns[0, :3].tolist() == [0.0, 0.5, 1.0]
    placed = place_outcomes(torch.tensor([2.0, 3.0]), torch.tensor([0, 0, 1]))
    assert placed.tolist() == [0.0, 2.0, 3.0]


def test_the_logged_reward_is_the_weighted_one() -> None:
    """TRL 5353: the logged reward left the weights of its parts out."""
    scheme = RewardScheme(
        terms=[
            RewardTerm(kind="exact_answer", weight=0.25),
            RewardTerm(kind="length", weight=-2.0),
        ]
    )
    groups = make_groups(0)
    for one in (one for group in groups for one in group):
        give_reward(scheme, one)
        assert one.reward.terms["length"] == one.sampled_tokens / 100
    every = [one for group in groups for one in group]
    expected = sum(-2 * one.sampled_tokens / 100 for one in every) / len(every)
    assert rl_step(begun("dapo"), groups)["reward_mean"] == pytest.approx(expected)


def test_a_teacher_like_the_student_costs_nothing() -> None:
    """TRL 5731: a fused divergence silently mixed in the cross-entropy of the labels."""
    drawn = torch.Generator().manual_seed(0)
    hidden, head = (torch.randn(*shape, generator=drawn) for shape in ((5, 4), (7, 4)))
    for beta in (0.0, 0.5, 1.0):
        student = hidden.clone().requires_grad_()
        values = divergence(student, head, hidden, head, beta=beta).values
        (gradient,) = torch.autograd.grad(values.sum(), student)
        assert float(values.abs().max()) < 1e-12
        assert float(gradient.abs().max()) < 1e-12


def test_a_teacher_may_think_a_token_impossible() -> None:
    """TRL 5594: log-probabilities of -inf made the loss NaN."""
    student = torch.zeros(1, 2, requires_grad=True)
    head, teacher = torch.eye(2), torch.tensor([[1e5, -1e5]])
    for beta in (0.0, 0.5, 1.0):
        values = divergence(student, head, teacher, head, beta=beta).values
        (gradient,) = torch.autograd.grad(values.sum(), student)
        assert math.isfinite(float(values.sum())) and bool(torch.isfinite(gradient).all())


def test_without_a_reference_there_is_no_kl_term() -> None:
    """AReaL 1.0.4: a missing reference counted as log-probability 0 with a weight of 0.1."""
    assert begun("grpo").reference is None
    trainer = make_trainer()
    trainer.begin(RlStage(algorithm="grpo", kl_weight=0.1))
    assert rl_step(trainer, make_groups(0))["kl_reference"] == pytest.approx(0, abs=1e-12)
    stages = [{"kind": "synthesise"}, {"kind": "rl", "kl_weight": 0.1}]
    spec, problems = problems_of({"name": "no reference", "stages": stages})
    assert spec is None or problems
    assert any("a random policy is no reference" in one.message for one in problems)
