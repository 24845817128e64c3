"""The same laws where every layer has experts, and a loss that keeps them evenly used, in float64.

Routes are no part of a trajectory: weights and tokens decide them, in whatever pass they are.
"""

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.hybrid.moe import Routing, balancing_loss
from engine.optim.optimizer import StageOptimizer
from engine.spec import RlStage
from engine.training.trainer import Trainer
from tests.conformance.algorithms.exact import (
    Groups,
    Result,
    assert_equal,
    begun,
    make_groups,
    stage_of,
    start,
    step,
)
from tests.engine.training.samples import FLAT, make_trainer, on_ranks

EXPERTS = 4
# What routes could come between: one update and several, a critic, a reference, whole sequences.
PRESETS = ["grpo", "ppo", "gspo", "kl in the loss", "decoupled", "opd", "dpo", "sft"]

every = pytest.mark.parametrize("name", PRESETS)
seeds = st.integers(0, 5)
few = settings(max_examples=2, derandomize=True, deadline=None)


def mixed(name: str, **how: Any) -> Trainer:
    return begun(name, experts=EXPERTS, **how)


@cache
def expected(name: str, seed: int) -> Result:
    """One step on one rank, all rows in one pass."""
    found = step(mixed(name, merge="off", tokens=1000), make_groups(seed))
    assert found[0]["balancing_loss"] > 2 + 1e-3  # nobody's experts are used evenly by chance
    return found


@every
@few
@given(seed=seeds, cut=st.sampled_from([("off", 16), ("off", 60), ("on", 40), ("on", 10_000)]))
def test_neither_micro_batches_nor_trees_change_anything(
    name: str, seed: int, cut: tuple[str, int]
) -> None:
    merge, tokens = cut
    assert_equal(
        step(mixed(name, merge=merge, tokens=tokens), make_groups(seed)), expected(name, seed)
    )


@every
@settings(max_examples=1, derandomize=True, deadline=None)
@given(seed=seeds, world=st.sampled_from([2, 3]), merge=st.sampled_from(["off", "on"]))
def test_the_number_of_ranks_changes_nothing(name: str, seed: int, world: int, merge: str) -> None:
    def work(trainer: Trainer) -> Result:
        start(trainer, stage_of(name))
        return step(trainer, make_groups(seed))

    made = {"precision": "float32", "merge": merge, "tokens": 60, "experts": EXPERTS}
    for _, found in on_ranks(world, work, **made):
        assert_equal(found, expected(name, seed))


@every
@settings(max_examples=1, derandomize=True, deadline=None)
@given(seed=seeds)
def test_neither_order_nor_masked_values_change_anything(name: str, seed: int) -> None:
    groups = make_groups(seed)
    random.Random(seed).shuffle(groups)
    for one in (one for group in groups for one in group):
        for segment in one.segments:
            for place, sampled in enumerate(segment.loss_mask):
                if not sampled:
                    segment.logprobs[place], segment.versions[place] = float("nan"), 10**6
    assert_equal(step(mixed(name), groups), expected(name, seed))


@every
def test_resuming_changes_nothing(name: str, tmp_path: Path) -> None:
    whole = mixed(name)
    step(whole, make_groups(0))
    whole.save(tmp_path / "step-1", {}, {})
    after = step(whole, make_groups(1))
    resumed = mixed(name)
    resumed.load(tmp_path / "step-1")
    assert_equal(step(resumed, make_groups(1)), after, tolerance=0.0)


def test_the_balancing_loss_is_of_all_real_tokens_of_the_update_and_logged_raw() -> None:
    """Written sample by sample, each token once a sample, for all rows that an update computes."""
    trainer, groups = mixed("sft", merge="on", tokens=40), make_groups(2)
    expected_loss = _by_hand(trainer, groups)
    figures = step(trainer, groups)[0]
    assert figures["balancing_loss"] == pytest.approx(expected_loss, abs=1e-12)
    dense = make_trainer(precision="float32")
    start(dense, stage_of("sft"))
    assert "balancing_loss" not in step(dense, groups)[0]


def test_a_critics_loss_is_that_of_its_values_alone() -> None:
    found = []
    for weight in (0.5, 0.0):
        trainer = make_trainer(precision="float32", merge="off", tokens=60, experts=EXPERTS)
        trainer.model.config.router_aux_loss_coef = weight
        start(trainer, stage_of("ppo"))
        found.append(step(trainer, make_groups(1))[0])
    assert found[0]["value_loss"] == pytest.approx(found[1]["value_loss"], abs=1e-12)
    assert found[0]["critic_grad_norm"] != pytest.approx(found[1]["critic_grad_norm"], abs=1e-9)


def test_muonclip_orthogonalises_each_expert_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient a thousand times as large in one expert moves no other one otherwise."""
    optimizer = FLAT.model_copy(update={"kind": "muon", "qk_clip": 1e-3, "lr": 1e-2})
    update = StageOptimizer.step

    def moves(factor: float) -> dict[str, torch.Tensor]:
        trainer = make_trainer(precision="float32", experts=EXPERTS)
        trainer.begin(RlStage(steps=20, optimizer=optimizer))
        before, weights = trainer.weights(), dict(trainer.model.named_parameters())

        def louder(self: StageOptimizer) -> dict[str, float]:
            for name in before:
                gradient = weights[name].grad
                if ".experts." in name and gradient is not None:
                    gradient[1] *= factor
            return update(self)

        monkeypatch.setattr(StageOptimizer, "step", louder)
        figures = step(trainer, make_groups(3))[0]
        assert figures["qk_clipped_heads"] > 0
        after = trainer.weights()
        return {name: after[name] - before[name] for name in before if ".experts." in name}

    plain, loud = moves(1.0), moves(1000.0)
    others = [0, 2, 3]
    for name, moved in plain.items():
        assert float(moved[others].abs().max()) > 1e-4
        assert torch.equal(loud[name][others], moved[others]), name


def test_a_step_lowers_the_balancing_loss_when_nothing_else_is_asked() -> None:
    trainer = make_trainer(precision="float32", experts=EXPERTS)
    trainer.model.config.router_aux_loss_coef = 1e4
    trainer.begin(RlStage(steps=20, optimizer=FLAT.model_copy(update={"lr": 1e-2})))
    found = [step(trainer, make_groups(0))[0]["balancing_loss"] for _ in range(8)]
    assert found[-1] < found[0]


@torch.no_grad()
def _by_hand(trainer: Trainer, groups: Groups) -> float:
    of_samples = [
        trainer.model.routed(torch.tensor([segment.ids])).routings
        for group in groups
        for one in group
        for segment in one.segments
    ]
    layers = [
        Routing(*(torch.cat(parts) for parts in zip(*layer, strict=True)))
        for layer in zip(*of_samples, strict=True)
    ]
    return float(balancing_loss(layers))
