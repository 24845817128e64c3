"""Training steps on prefix trees and on their samples: batches, a step, and how equal they are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.algorithms.batch import collate
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.records.trajectory import Segment
from engine.trees.batch import tree_batch
from engine.trees.build import build_forest
from engine.trees.pack import make_packs

VOCABULARY = 1000
WEIGHT_MAX = 5.0
WHOLE = 1 << 40  # a bound that nothing reaches
LIGHTNING, SOFTMAX = "linear_attention", "full_attention"


@dataclass(frozen=True)
class Shape:
    """Rollouts of one prompt; every turn of a rollout is a sample, trained on its own tokens."""

    prompt: int
    turns: int
    turn: int  # tokens
    rollouts: int

    def __str__(self) -> str:
        return (
            f"prompt {self.prompt}, {self.turns} turns of {self.turn} tokens, "
            f"{self.rollouts} rollouts"
        )


@dataclass(frozen=True)
class Samples:
    """A batch: segments, and the advantage of each."""

    segments: list[Segment]
    advantages: list[float]

    @property
    def tokens(self) -> int:
        return sum(len(segment.ids) for segment in self.segments)

    @property
    def ratio(self) -> float:
        """Tokens of the samples over tokens of their prefix tree."""
        forest = build_forest([np.array(segment.ids) for segment in self.segments])
        return self.tokens / forest.tokens

    def every(self, step: int) -> "Samples":
        return Samples(self.segments[::step], self.advantages[::step])


def turn_samples(shape: Shape) -> Samples:
    return _samples(shape, [range(turn, turn + 1) for turn in range(shape.turns)])


def joined_samples(shape: Shape) -> Samples:
    """The same turns, each rollout one sample: what a trainer that joins turns has, no tree."""
    return _samples(shape, [range(shape.turns)])


def _samples(shape: Shape, trained: Sequence[range]) -> Samples:
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, VOCABULARY, shape.prompt)
    segments, advantages = [], []
    for rollout in range(shape.rollouts):
        own = rng.integers(0, VOCABULARY, shape.turns * shape.turn)
        ids = np.concatenate([prompt, own]).tolist()
        for turns in trained:
            first = shape.prompt + turns.start * shape.turn
            length = shape.prompt + turns.stop * shape.turn
            mask = [False] * first + [True] * (length - first)
            behaviour = [-math.log(VOCABULARY) if one else 0.0 for one in mask]
            versions = [0 if one else -1 for one in mask]
            segments.append(Segment(ids[:length], mask, behaviour, versions))
            advantages.append(1.0 if rollout % 2 else -0.5)
    return Samples(segments, advantages)


def make_model(
    layers: list[str] | None = None,
    *,
    width: int = 256,
    experts: int = 1,
    dtype: torch.dtype = torch.float32,
) -> HybridForCausalLM:
    """By default 4 layers, 3 lightning : 1 softmax, width 256, heads of 64."""
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_attention_heads=4,
        intermediate_size=2 * width,
        layer_types=layers or [*[LIGHTNING] * 3, SOFTMAX],
        num_local_experts=experts,
    )
    model = HybridForCausalLM(config)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def step(model: HybridForCausalLM, samples: Samples, *, merge: bool, bound: int) -> float:
    """CISPO's loss and gradient, from lists of ids on; `bound`: tokens of a micro-batch."""
    for parameter in model.parameters():
        parameter.grad = None
    batch = collate(samples.segments)
    rows = zip(batch.ids.numpy(), batch.lengths.tolist(), strict=True)
    sequences = [row[:length] for row, length in rows]
    advantages, total = torch.tensor(samples.advantages), 0.0
    for pack in make_packs(sequences, [0] * len(sequences), bound, merge=merge):
        tree = tree_batch(batch, sequences, pack, merge=merge)
        hidden = model.hidden(tree.ids, layout=tree.layout)
        found = tree.rows(hidden).logprobs(model.head_weight, 1.0).logprobs
        weight = (found.detach() - batch.behaviour[tree.place]).exp().clamp(max=WEIGHT_MAX)
        loss = -(weight * advantages[tree.place[0]] * found).sum() / batch.loss_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def alone(model: HybridForCausalLM, samples: Samples) -> float:
    """The same loss and gradient, each sample in a plain pass of its own."""
    for parameter in model.parameters():
        parameter.grad = None
    tokens, total = sum(sum(segment.loss_mask) for segment in samples.segments), 0.0
    for segment, advantage in zip(samples.segments, samples.advantages, strict=True):
        ids, mask = torch.tensor(segment.ids), torch.tensor(segment.loss_mask)
        logits = model.hidden(ids[None])[0, :-1][mask[1:]] @ model.head_weight.T
        found = torch.log_softmax(logits, dim=-1).gather(1, ids[mask][:, None])[:, 0]
        behaviour = torch.tensor(segment.logprobs)[mask]
        weight = (found.detach() - behaviour).exp().clamp(max=WEIGHT_MAX)
        loss = -(weight * advantage * found).sum() / tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def errors(model: HybridForCausalLM, samples: Samples) -> tuple[float, float]:
    """Relative errors, tree to samples: of the loss, and the largest of a parameter's gradient."""
    expected = alone(model, samples)
    gradients = [_gradient(parameter).clone() for parameter in model.parameters()]
    found = step(model, samples, merge=True, bound=WHOLE)
    largest = max(
        float((_gradient(parameter) - gradient).norm() / gradient.norm())
        for parameter, gradient in zip(model.parameters(), gradients, strict=True)
    )
    return abs(found / expected - 1), largest


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
