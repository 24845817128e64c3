"""The plan of a run against the trainer's and the sampler's own tensors."""

from pathlib import Path

import pytest
import torch

from engine.models.hybrid import HybridCache, HybridConfig, HybridForCausalLM
from engine.optim.optimizer import StageOptimizer
from engine.planner import (
    RunPlan,
    generation,
    optimizer_bytes,
    parameters,
    plan_run,
    read_config,
    training,
)
from engine.spec import ExperimentSpec, OptimizerSpec, load_spec
from workers.local.places import CHECKOUT

MOST_MODELS = [
    HybridConfig(),
    HybridConfig(num_local_experts=3, num_experts_per_tok=2, num_key_value_heads=2),
]


def recipe(name: str = "kg-search") -> ExperimentSpec:
    spec, problems = load_spec(Path(CHECKOUT / "recipes" / f"{name}.yaml").read_text())
    assert spec is not None, problems
    return spec


def held(*tensors: torch.Tensor | None) -> int:
    """Bytes behind tensors, each storage once."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("config", MOST_MODELS, ids=["dense", "experts"])
def test_the_optimizer_holds_what_is_planned(config: HybridConfig, kind: str) -> None:
    model = HybridForCausalLM(config)
    spec = OptimizerSpec(kind=kind)  # type: ignore[arg-type]
    named = dict(model.named_parameters())
    optimizer = StageOptimizer(named, spec, 10, model.fused_matrices(), model.tables())
    for parameter in named.values():
        parameter.grad = torch.ones_like(parameter)
    gradients = held(*(parameter.grad for parameter in named.values()))
    optimizer.step()
    states = [x for name, x in optimizer.tensors().items() if not name.endswith("step")]
    states = [x for x in states if x.dim()]  # without counters
    pieces = [piece for matrix in optimizer._fused for piece in matrix.pieces]
    master = [parameter.grad for parameter in named.values()]
    total = held(*states, *pieces, *(piece.grad for piece in pieces), *master) - gradients
    assert total == optimizer_bytes(read_config(config.to_dict(), "x"), spec)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_trainer_and_rollout_hold_what_is_planned(precision: str) -> None:
    spec = recipe()
    trainer = spec.trainer.model_copy(update={"precision": precision})
    plan = plan_run(spec.model_copy(update={"trainer": trainer}))
    config = HybridConfig.from_spec(spec.model, spec.model.vocab_size, pad_id=0, end_id=1)
    model = HybridForCausalLM(config)
    masters = held(*model.parameters())
    assert plan.trainer.weights == plan.trainer.gradients == masters
    if precision == "bfloat16":
        copied = model.copy_in(torch.bfloat16)
        own = held(*copied.parameters(), *model.parameters()) - masters
        assert plan.trainer.copy == 2 * own  # and their gradients
        model.body_(torch.bfloat16)
    else:
        assert plan.trainer.copy == 0
    assert plan.rollout.weights == held(*model.parameters())
    slots, length = spec.rollout.slots, spec.environment.max_tokens
    cache = HybridCache.empty(config, slots, length)
    kv = held(*(x for layer in cache.layers for x in (layer.keys, layer.values)))
    assert plan.rollout.kv == kv
    assert plan.rollout.states == held(*cache.tensors()) - kv - held(cache.lengths)


def test_stages_are_bounded_by_trajectories_of_full_length() -> None:
    spec = recipe()
    plan: RunPlan = plan_run(spec)
    sft, rl = plan.stages
    length = spec.environment.max_tokens
    assert (sft.kind, sft.trajectories, sft.tokens) == ("sft", 64, 64 * length)
    assert (rl.kind, rl.trajectories, rl.tokens) == ("rl", 24 * 8, 24 * 8 * length)
    assert sft.generation_flops == 0
    assert rl.generation_flops == pytest.approx(192 * generation(plan.model, length).total)
    assert rl.training_flops == pytest.approx(rl.tokens * plan.trained_token_flops)
    assert plan.trained_token_flops == pytest.approx(training(plan.model, length).total / length)
    assert plan.parameters == parameters(plan.model)


def test_the_larger_optimizer_of_the_stages_counts() -> None:
    spec = recipe()
    found = plan_run(spec)
    kinds = {stage.optimizer.kind for stage in spec.stages if hasattr(stage, "optimizer")}
    assert kinds == {"muon", "adamw"}
    each = [optimizer_bytes(found.model, OptimizerSpec(kind=kind)) for kind in ("muon", "adamw")]
    assert found.trainer.optimizer == max(each)
