"""Loss and every gradient of a tree equal those of its samples, each alone."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.algorithms.batch import TokenBatch, collate
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.hybrid.moe import balancing_loss
from engine.models.logprobs import token_logprobs
from engine.records.trajectory import Segment
from engine.trees.batch import tree_batch
from engine.trees.build import Ints
from engine.trees.pack import make_packs

LIGHTNING, SOFTMAX = "linear_attention", "full_attention"
VOCABULARY = 30
THREE_TO_ONE = [*[LIGHTNING] * 3, SOFTMAX]
SEVEN_TO_ONE = [*[LIGHTNING] * 7, SOFTMAX]
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12}
TEMPERATURE = 0.8


def make_model(layers: list[str], experts: int, dtype: torch.dtype) -> HybridForCausalLM:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        layer_types=layers,
        num_local_experts=experts,
    )
    return HybridForCausalLM(config).to(dtype)


def make_batch(seed: int, samples: int = 9, longest: int = 40) -> TokenBatch:
    """Samples that fork from each other, from their middle, their end or not at all."""
    rng = random.Random(seed)
    segments: list[Segment] = []
    for _ in range(samples):
        ids = [rng.randrange(VOCABULARY) for _ in range(rng.randint(2, longest))]
        if segments and rng.random() < 0.8:
            whole = rng.choice(segments).ids
            ids = whole[: rng.randint(1, len(whole))] + ids
        mask = [place > 0 and rng.random() < 0.5 for place in range(len(ids))]
        mask[-1] = True
        behaviour = [-rng.uniform(1, 5) if sampled else 0.0 for sampled in mask]
        segments.append(Segment(ids, mask, behaviour, [0 if sampled else -1 for sampled in mask]))
    return collate(segments)


def advantages_of(batch: TokenBatch) -> Tensor:
    """Of both signs, another one for each row."""
    rows = torch.arange(len(batch)) + 1.0
    return (2 * torch.sin(rows))[:, None].expand(batch.ids.shape)


def sequences_of(batch: TokenBatch) -> list[Ints]:
    rows = zip(batch.ids.numpy(), batch.lengths.tolist(), strict=True)
    return [row[:length] for row, length in rows]


def loss_of(logprobs: Tensor, behaviour: Tensor, advantages: Tensor) -> Tensor:
    """PPO's: not linear in the log-probabilities, and each sample's own."""
    ratio = (logprobs - behaviour.to(logprobs)).exp()
    advantages = advantages.to(logprobs)
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum()


def gradients(model: HybridForCausalLM) -> dict[str, Tensor]:
    found = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        found[name] = parameter.grad
        parameter.grad = None
    return found


def alone(model: HybridForCausalLM, batch: TokenBatch) -> tuple[float, dict[str, Tensor]]:
    """Each row by itself, through the model's plain pass."""
    total = 0.0
    for row, length in enumerate(batch.lengths.tolist()):
        mask = batch.loss_mask[row, :length]
        ids = batch.ids[row, :length]
        hidden = model.hidden(ids[None])[0, :-1][mask[1:]]
        found = token_logprobs(hidden, model.head_weight, ids[mask], TEMPERATURE)
        loss = loss_of(
            found.logprobs,
            batch.behaviour[row, :length][mask],
            advantages_of(batch)[row, :length][mask],
        )
        loss.backward()
        total += float(loss.detach())
    return total, gradients(model)


def merged(
    model: HybridForCausalLM, batch: TokenBatch, bound: int, merge: bool = True
) -> tuple[float, dict[str, Tensor]]:
    sequences, total = sequences_of(batch), 0.0
    groups = [index % 3 for index in range(len(batch))]
    for pack in make_packs(sequences, groups, bound, merge=merge):
        tree = tree_batch(batch, sequences, pack, merge=merge)
        hidden = model.hidden(tree.ids, layout=tree.layout)
        found = tree.rows(hidden).logprobs(model.head_weight, TEMPERATURE)
        advantages = advantages_of(batch)[tree.place]
        loss = loss_of(found.logprobs, batch.behaviour[tree.place], advantages)
        loss.backward()
        total += float(loss.detach())
    return total, gradients(model)


def assert_equal(
    found: tuple[float, dict[str, Tensor]], expected: tuple[float, dict[str, Tensor]], bound: float
) -> None:
    assert found[0] == pytest.approx(expected[0], rel=bound)
    for name, gradient in expected[1].items():
        error = (found[1][name] - gradient).norm() / gradient.norm()
        assert error <= bound, (name, float(error))


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("experts", [1, 4], ids=["dense", "experts"])
@pytest.mark.parametrize("layers", [THREE_TO_ONE, SEVEN_TO_ONE], ids=["3:1", "7:1"])
def test_loss_and_every_gradient_are_those_of_the_samples_alone(
    layers: list[str], experts: int, dtype: torch.dtype
) -> None:
    model, batch = make_model(layers, experts, dtype), make_batch(1, samples=12, longest=90)
    assert_equal(merged(model, batch, 10_000), alone(model, batch), BOUNDS[dtype])


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 300), st.booleans())
def test_nothing_depends_on_how_a_random_forest_is_cut(seed: int, bound: int, merge: bool) -> None:
    model = make_model([LIGHTNING, SOFTMAX], 1, torch.float64)
    batch = make_batch(seed)
    assert_equal(merged(model, batch, bound, merge), alone(model, batch), 1e-11)


def test_what_a_sample_is_told_is_its_own() -> None:
    """Two samples of equal ids with other masks share every edge."""
    ids = [1, 2, 3, 4]
    masks = [[False, True, True, False], [False, False, True, True]]
    segments = [Segment(ids, mask, [0.0] * 4, [0] * 4) for mask in masks]
    batch = collate(segments)
    sequences = sequences_of(batch)
    tree = tree_batch(batch, sequences, make_packs(sequences, [0, 0], 100)[0])
    assert tree.ids.tolist() == [ids]
    assert tree.sources.tolist() == [0, 1, 2] and tree.targets.tolist() == [2, 3, 4]
    assert tree.multiplicity.tolist() == [2, 2, 2, 2]
    edges = {
        (row, column): edge
        for row, column, edge in zip(*map(Tensor.tolist, (*tree.place, tree.edge_of)), strict=True)
    }
    assert edges == {(0, 1): 0, (0, 2): 1, (1, 2): 1, (1, 3): 2}


def test_balancing_weighs_a_shared_token_by_its_samples() -> None:
    model, batch = make_model(THREE_TO_ONE, 4, torch.float64), make_batch(3)
    sequences = sequences_of(batch)
    (pack,) = make_packs(sequences, [0] * len(batch), 10_000)
    losses = []
    for merge in (True, False):
        tree = tree_batch(batch, sequences, pack, merge=merge)
        routings = model.routed(tree.ids, layout=tree.layout).routings
        losses.append(balancing_loss(routings, tree.multiplicity))
    assert float(losses[0].detach()) == pytest.approx(float(losses[1].detach()), rel=1e-12)


def test_filling_changes_nothing_and_belongs_to_nobody() -> None:
    model, batch = make_model(THREE_TO_ONE, 4, torch.float64), make_batch(5)
    sequences = sequences_of(batch)
    (pack,) = make_packs(sequences, [0] * len(batch), 10_000)
    found = []
    for round_to in (1, 128):
        tree = tree_batch(batch, sequences, pack, round_to=round_to)
        assert tree.ids.shape[1] % round_to == 0
        assert tree.multiplicity.sum() == tree.forest.sequence_tokens
        hidden = model.hidden(tree.ids, layout=tree.layout)
        logprobs = tree.rows(hidden).logprobs(model.head_weight, TEMPERATURE).logprobs
        loss_of(logprobs, batch.behaviour[tree.place], advantages_of(batch)[tree.place]).backward()
        found.append((float(logprobs.detach().sum()), gradients(model)))
    assert_equal(found[1], found[0], 1e-12)
