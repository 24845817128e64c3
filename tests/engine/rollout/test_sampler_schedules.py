"""Whatever is opened, extended, marked, rewound, forked, closed and published, in whatever order:
each token is of the version that it records, with that version's log-probability."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.rollout import torch_sampler
from engine.rollout.torch_sampler import TorchSampler

VOCABULARY, END, LONGEST = 9, 0, 60
OPERATIONS = ("open", "step", "step", "step", "extend", "mark", "rewind", "fork", "close", "load")


def make_policy(seed: int) -> HybridForCausalLM:
    torch.manual_seed(seed)
    config = HybridConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=16,
        layer_types=["linear_attention", "full_attention"] * 2,
        initializer_range=0.4,
        embedding_std=0.3,
    )
    return HybridForCausalLM(config).eval()


VERSIONS = [make_policy(seed) for seed in range(3)]


@dataclass
class Driver:
    """A sampler, and beside it what every sequence should hold."""

    sampler: TorchSampler
    contexts: dict[int, list[int]] = field(default_factory=dict)
    inside: set[int] = field(default_factory=set)
    temperatures: dict[int, float] = field(default_factory=dict)
    marks: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    checked: int = 0

    def apply(self, operation: str, choice: int) -> None:
        getattr(self, f"_{operation}")(choice)

    def _pick(self, among: Any, choice: int) -> Any:
        among = sorted(among)
        return among[choice % len(among)] if among else None

    def _between(self, choice: int) -> int | None:
        return self._pick(self.contexts.keys() - self.inside, choice)

    def _started(self, sequence: int, context: list[int], temperature: float) -> None:
        self.contexts[sequence], self.temperatures[sequence] = context, temperature
        self.inside.add(sequence)

    def _open(self, choice: int) -> None:
        copies = 1 + choice % 4
        if len(self.contexts) + copies <= self.sampler.capacity:
            prompt = [1 + (choice + i) % (VOCABULARY - 1) for i in range(1 + choice % 7)]
            temperature = (0.0, 1.0, 0.7)[choice % 3]
            for sequence in self.sampler.open(prompt, copies, 1 + choice % 5, temperature):
                self._started(sequence, list(prompt), temperature)

    def _step(self, choice: int) -> None:
        for turn in self.sampler.step():
            self._check(turn)
            self.contexts[turn.sequence] += turn.ids
            self.inside.remove(turn.sequence)

    def _extend(self, choice: int) -> None:
        sequence = self._between(choice)
        if sequence is not None and len(self.contexts[sequence]) < 40:
            seen = [1 + (choice * i) % (VOCABULARY - 1) for i in range(choice % 6)]
            self.sampler.extend(sequence, seen, 1 + choice % 5)
            self.contexts[sequence] += seen
            self.inside.add(sequence)

    def _mark(self, choice: int) -> None:
        sequence = self._between(choice)
        if sequence is not None:
            mark = self.sampler.mark(sequence)
            self.marks[mark] = sequence, list(self.contexts[sequence])

    def _rewind(self, choice: int) -> None:
        mark = self._pick(
            [m for m, (sequence, _) in self.marks.items() if sequence not in self.inside], choice
        )
        if mark is not None:
            sequence, context = self.marks[mark]
            seen = [3] * (choice % 3)
            self.sampler.rewind(sequence, mark, seen, 1 + choice % 5)
            self._started(sequence, [*context, *seen], self.temperatures[sequence])

    def _fork(self, choice: int) -> None:
        mark = self._pick(self.marks, choice)
        if mark is not None and len(self.contexts) < self.sampler.capacity:
            sequence, context = self.marks[mark]
            seen = [5] * (choice % 3)
            fork = self.sampler.fork(sequence, mark, seen, 1 + choice % 5, 1.0)
            self._started(fork, [*context, *seen], 1.0)

    def _close(self, choice: int) -> None:
        sequence = self._pick(self.contexts, choice)
        if sequence is not None:
            self.sampler.close(sequence)
            del self.contexts[sequence]
            self.inside.discard(sequence)
            self.marks = {m: one for m, one in self.marks.items() if one[0] != sequence}

    def _load(self, choice: int) -> None:
        version = self.sampler.version + 1
        self.sampler.load_weights(version, VERSIONS[version % len(VERSIONS)].state_dict())

    def _check(self, turn: Any) -> None:
        context, temperature = self.contexts[turn.sequence], self.temperatures[turn.sequence]
        ids = torch.tensor([*context, *turn.ids])[None]
        places: dict[int, list[int]] = defaultdict(list)
        for place, version in enumerate(turn.versions):
            places[version].append(place)
        for version, found in places.items():
            with torch.no_grad():
                logits = VERSIONS[version % len(VERSIONS)](ids).logits[0]
            log_p = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
            for place in found:
                row = log_p[len(context) + place - 1]
                expected = float(row[turn.ids[place]])
                assert turn.logprobs[place] == pytest.approx(expected, abs=1e-4)
                if temperature == 0.0:
                    assert expected > float(row.max()) - 1e-4
        self.checked += len(turn.ids)


@pytest.mark.parametrize("share_from", [2, 1000])
@settings(max_examples=30, deadline=None)
@given(
    operations=st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 99)), min_size=5, max_size=60
    )
)
def test_any_schedule_is_exact(share_from: int, operations: list[tuple[str, int]]) -> None:
    model = make_policy(0)
    with patch.object(torch_sampler, "SHARE_FROM", share_from):
        sampler = TorchSampler(model, end_id=END, capacity=7, max_tokens=LONGEST, seed=0)
        driver = Driver(sampler)
        for operation, choice in operations:
            driver.apply(operation, choice)
        for _ in range(8):  # every turn ends
            driver.apply("step", 0)
    assert not driver.inside
