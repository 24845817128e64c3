"""A world of twelve tokens, in which a random policy ends its turns now and then."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from engine.environments.protocol import Observation, Task
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.records.trajectory import StopReason
from engine.rewards.scheme import RewardScheme
from engine.rollout.agent_loop import AgentLoop
from engine.rollout.torch_sampler import TorchSampler
from engine.spec import EnvironmentSpec

END, AGENT, TOOL = 0, 1, 2
LETTERS = "abcdefghi"


class Talk:
    """Answers each turn with some of its own letters, and ends after three turns."""

    def __init__(self) -> None:
        self.turns = 0

    def tools(self) -> list[dict[str, Any]]:
        return []

    def start(self, task: Task) -> "Talk":
        return Talk()

    def act(self, text: str) -> Observation:
        self.turns += 1
        if self.turns == 3:
            return Observation("", answer=text, stop=StopReason.ANSWERED)
        return Observation(text[: len(text) // 2 + 1])


class World:
    """The tokenizer of the twelve tokens, and what the tests build on it."""

    limits = EnvironmentSpec(max_turn_tokens=24, max_tokens=80)
    tasks = [Task(f"t{n}", "1 hop", LETTERS[: 1 + n % 9], "a", 1) for n in range(12)]
    end_id = END

    def encode_prompt(self, task: Task) -> list[int]:
        return [*self._encode(task.prompt), AGENT]

    def encode_observation(self, text: str) -> list[int]:
        return [TOOL, *self._encode(text), AGENT]

    def decode_turn(self, ids: Sequence[int]) -> str:
        return "".join(LETTERS[i - 3] for i in ids if i > TOOL)

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        return [b"." if i <= TOOL else LETTERS[i - 3].encode() for i in ids]

    def _encode(self, text: str) -> list[int]:
        return [LETTERS.index(letter) + 3 for letter in text]

    def policy(self, seed: int = 0, experts: int = 1) -> HybridForCausalLM:
        torch.manual_seed(seed)
        config = HybridConfig(
            vocab_size=12,
            hidden_size=32,
            num_attention_heads=4,
            intermediate_size=48,
            num_local_experts=experts,
            initializer_range=0.3,
            embedding_std=0.15,
        )
        return HybridForCausalLM(config)

    def sampler(self, model: HybridForCausalLM, capacity: int = 16) -> TorchSampler:
        return TorchSampler(
            model, end_id=END, capacity=capacity, max_tokens=self.limits.max_tokens, seed=0
        )

    def loop(self, model: HybridForCausalLM, capacity: int = 16) -> AgentLoop:
        return AgentLoop(self.sampler(model, capacity), Talk(), self, RewardScheme(), self.limits)


@pytest.fixture
def world() -> World:
    return World()
