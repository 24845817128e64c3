"""A mixture of experts in the trainer: the balancing loss, prefix trees, precision, checkpoints."""

from types import SimpleNamespace

import pytest
import torch

from engine.models.hybrid import HybridConfig
from engine.models.hybrid.moe import balancing_loss
from engine.records.trajectory import Segment
from engine.spec import ExperimentSpec, ModelSpec, OptimizerSpec, SftStage, SynthesiseStage
from engine.spec import TrainerSpec as Training
from engine.training.supervised import sft_step
from engine.training.trainer import Trainer

STEADY = {"warmup_steps": 0, "decay_share": 0.0, "clip_norm": 1e9}
PREFIX = list(range(3, 17))
ANSWERS = [[20, 21, 22], [20, 23], [5, 6, 7, 8, 9], [30]]


def make_trainer(kind: str = "adamw", **fields) -> Trainer:
    training = {"precision": "float32"} | fields.pop("training", {})
    model = {"width": 32, "mlp_width": 24, "experts": 4, "tie_embeddings": False, "kv_heads": 2}
    spec = ExperimentSpec(
        name="mixture",
        model=ModelSpec(**model | fields),
        stages=[SynthesiseStage()],
        trainer=Training(**training),
    )
    trainer = Trainer(spec, HybridConfig.from_spec(spec.model, 40, 0, 1))
    trainer.begin(SftStage(steps=20, optimizer=OptimizerSpec(kind=kind, lr=3e-3, **STEADY)))
    return trainer


def demonstrations() -> list[SimpleNamespace]:
    """Of a demonstration the trainer reads its segments alone."""
    found = []
    for answer in ANSWERS:
        ids, mask = PREFIX + answer, [False] * len(PREFIX) + [True] * len(answer)
        segment = Segment(ids, mask, [0.0] * len(ids), [-1] * len(ids))
        found.append(SimpleNamespace(segments=[segment]))
    return found


def test_the_balancing_loss_counts_each_sample_and_no_padding() -> None:
    plain, balanced = make_trainer(), make_trainer(router_aux_weight=0.5)
    routings = []
    with torch.no_grad():
        for answer in ANSWERS:
            routings.append(plain.model.routed(torch.tensor([PREFIX + answer])).routings)
    joined = [
        tuple(torch.cat(parts) for parts in zip(*layer, strict=True))
        for layer in zip(*routings, strict=True)
    ]
    expected = float(balancing_loss(joined))
    loss = sft_step(plain, demonstrations())["loss"]
    assert sft_step(balanced, demonstrations())["loss"] == pytest.approx(
        loss + 0.5 * expected, abs=1e-5
    )


def test_merged_and_separate_samples_have_one_loss_and_gradient() -> None:
    trainers = [
        make_trainer(router_aux_weight=0.5, training={"tree_merge": merge})
        for merge in ("on", "off")
    ]
    losses = [sft_step(trainer, demonstrations())["loss"] for trainer in trainers]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    merged, separate = (dict(trainer.model.named_parameters()) for trainer in trainers)
    for name, parameter in separate.items():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
        difference = (merged[name].grad - parameter.grad).norm()
        assert float(difference) <= 1e-5 * float(parameter.grad.norm()), name


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_it_learns_with_bf16_blocks_and_goes_on_from_a_checkpoint(kind: str, tmp_path) -> None:
    trainer = make_trainer(kind, router_aux_weight=0.01, training={"precision": "bfloat16"})
    first = sft_step(trainer, demonstrations())["loss"]
    for _ in range(9):
        last = sft_step(trainer, demonstrations())["loss"]
    assert last < 0.7 * first
    trainer.save(tmp_path / "checkpoint", {}, {})
    resumed = make_trainer(kind, router_aux_weight=0.01, training={"precision": "bfloat16"})
    resumed.load(tmp_path / "checkpoint")
    again, there = (sft_step(one, demonstrations())["loss"] for one in (resumed, trainer))
    assert again == there
    for name, weight in trainer.weights().items():
        assert torch.equal(weight, resumed.weights()[name]), name
