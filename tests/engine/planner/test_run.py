"""The plan of a run against the trainer's and the sampler's own tensors."""

from pathlib import Path

import pytest
import torch

from engine.models.hybrid import HybridCache, HybridConfig, HybridForCausalLM
from engine.models.logprobs import token_logprobs
from engine.optim.optimizer import StageOptimizer
from engine.planner import (
    RunPlan,
    advise_run,
    generation,
    next_token,
    optimizer_bytes,
    own_cluster,
    parameters,
    plan_run,
    prefill,
    read_config,
    training,
)
from engine.planner.activations import saved_bytes
from engine.planner.configs import from_spec
from engine.planner.run_memory import (
    KEPT,
    adapter_parameters,
    critic_bytes,
    frozen_bytes,
    teacher_bytes,
    trainer_memory,
    trainer_phases,
)
from engine.planner.run_time import own_step_time
from engine.planner.stages import HeldTeachers, teachers_held
from engine.spec import (
    ExperimentSpec,
    LoraSpec,
    OpdStage,
    OptimizerSpec,
    RlStage,
    SftStage,
    SynthesiseStage,
    TeacherSpec,
    load_spec,
)
from engine.spec.dpo import DpoStage
from engine.spec.lineage import TrainedStage
from engine.training.learner import Learner
from engine.training.trainer import Trainer
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


def learner_bytes(learner: Learner) -> int:
    """Bytes of the tensors that a learner keeps after an update, counters of steps left out."""
    own = [*learner.model.parameters()]
    if learner.head is not None:
        own += learner.head.parameters()
    for parameter in own:
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    copied = {id(p): p for p in learner.compute.parameters() if id(p) not in set(map(id, own))}
    optimizer = learner.running_optimizer
    optimizer.step()
    states = [x for name, x in optimizer.tensors().items() if not name.endswith("step")]
    pieces = [piece for matrix in optimizer._fused for piece in matrix.pieces]
    beside = [*copied.values(), *pieces, *(piece.grad for piece in pieces)]
    moments = [x for x in states if x.dim()]
    gradients_of_copy = held(*(p for p in copied.values() if p.requires_grad))
    masters = [*own, *(p.grad for p in own)]
    return held(*masters, *beside, *moments) + gradients_of_copy


@pytest.fixture
def as_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer computes in bf16 where it is asked to, however slow that is just now."""
    monkeypatch.setattr("engine.training.precision._product_time", lambda dtype: 1.0)


@pytest.mark.usefixtures("as_wished")
@pytest.mark.parametrize("experts", [1, 3])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_policy_critic_and_reference_are_as_large_as_planned(
    precision: str, kind: str, experts: int
) -> None:
    spec = recipe()
    trainer_spec = spec.trainer.model_copy(update={"precision": precision})
    policy = spec.model.model_copy(update={"experts": experts})
    spec = spec.model_copy(update={"trainer": trainer_spec, "model": policy})
    optimizer = OptimizerSpec(kind=kind)  # type: ignore[arg-type]
    stage = RlStage(algorithm="ppo", kl_weight=0.1, optimizer=optimizer)
    config = HybridConfig.from_spec(spec.model, spec.model.vocab_size, pad_id=0, end_id=1)
    trainer = Trainer(spec, config)
    trainer.begin(stage)
    model = plan_run(spec).model
    own = trainer_memory(model, precision, optimizer)
    assert learner_bytes(trainer.policy) == own.total
    assert trainer.critic is not None
    critic = critic_bytes(model, precision, stage.critic.optimizer)
    assert learner_bytes(trainer.critic._learner) == critic
    assert trainer.reference is not None
    assert held(*trainer.reference.parameters()) == frozen_bytes(model, precision)


@pytest.mark.usefixtures("as_wished")
@pytest.mark.parametrize("experts", [1, 3])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_adapters_alone_have_gradients_and_moments(precision: str, experts: int) -> None:
    spec = recipe()
    trainer_spec = spec.trainer.model_copy(update={"precision": precision})
    policy = spec.model.model_copy(update={"experts": experts})
    spec = spec.model_copy(update={"trainer": trainer_spec, "model": policy})
    config = HybridConfig.from_spec(spec.model, spec.model.vocab_size, pad_id=0, end_id=1)
    trainer = Trainer(spec, config)
    stage = SftStage(optimizer=OptimizerSpec(), lora=LoraSpec(rank=4, alpha=8.0))
    trainer.begin(stage)
    planned = trainer_memory(plan_run(spec).model, precision, stage.optimizer, stage.lora)
    assert learner_bytes(trainer.policy) == planned.total


def phases(stage: TrainedStage) -> dict[str, dict[str, float]]:
    spec = recipe()
    spec = spec.model_copy(update={"stages": [*spec.stages, stage]})
    found = trainer_phases(plan_run(spec).model, spec, len(spec.stages) - 1)
    return {phase.name: phase.components for phase in found}


def test_phases_are_those_of_the_stages_algorithm() -> None:
    assert list(phases(SftStage())) == ["actor update"]
    assert list(phases(RlStage())) == ["actor update"]
    assert list(phases(DpoStage())) == ["log-prob pass", "actor update"]
    ppo = phases(RlStage(algorithm="ppo", kl_weight=0.1))
    assert list(ppo) == ["log-prob pass", "critic pass", "actor update", "critic update"]
    assert list(phases(RlStage(algorithm="ppo"))) == list(ppo)[1:]
    assert list(phases(RlStage(anchor="old"))) == ["actor update"]  # one update: nothing to ask
    assert list(phases(RlStage(anchor="old", epochs=2))) == ["log-prob pass", "actor update"]
    assert all({"critic", "reference", "published weights"} < set(parts) for parts in ppo.values())


def test_teachers_are_frozen_copies_whose_distribution_stands_beside_the_students() -> None:
    teachers = [TeacherSpec(stage=1), TeacherSpec(stage=2)]
    opd = OpdStage(teachers=teachers, algorithm="gkd", prompts_per_step=4, group_size=2)
    plain, taught = phases(RlStage())["actor update"], phases(opd)["actor update"]
    spec = recipe()
    model = plan_run(spec).model
    assert list(phases(opd)) == ["teacher pass", "actor update"]
    assert taught["teachers"] == 2 * frozen_bytes(model, "bfloat16")
    assert taught["logits"] == 2 * plain["logits"]
    rows = 8 + opd.demonstrations_per_step
    assert taught["teachers' states"] == 2 * rows * 160 * model.width * 2
    parts = {part.name: part.flops for part in own_step_time(model, spec, opd, 100).parts}
    assert parts["teachers"] == pytest.approx(2 * rows * prefill(model, 100).total)
    assert parts["actor update"] == pytest.approx(rows * training(model, 100).total)
    assert parts["decoding"] == pytest.approx(8 * 100 * next_token(model, 50).total)


def test_teachers_of_adapters_cost_the_weights_under_them_once() -> None:
    """`engine.training.teachers` is held to the same numbers in its own test."""
    lora = LoraSpec(rank=4)
    stages = [
        SynthesiseStage(),
        SftStage(),
        SftStage(start_from=1, lora=lora),
        SftStage(start_from=1, lora=LoraSpec(rank=6)),
        SftStage(start_from=1),
        SftStage(start_from=4, lora=lora),
    ]

    def held(*teachers: int, **student) -> HeldTeachers:
        specs = [TeacherSpec(stage=number) for number in teachers]
        opd = OpdStage(teachers=specs, **{"start_from": 1} | student)
        return teachers_held([*stages, opd], len(stages))

    assert held(2, 3, lora=lora) == (0, [4, 6])
    assert held(2, 3, 3, 4, lora=lora) == (1, [4, 6])
    assert held(2, 3) == (1, [4, 6])  # the student's own weights move
    assert held(2) == (1, [])
    assert held(2, 5, lora=lora) == (1, [4])
    assert held(2, 3, 5, start_from=4, lora=lora) == (1, [4, 6, 4])
    model = from_spec(recipe().model, "m")
    assert teacher_bytes(model, "bfloat16", HeldTeachers(1, [4, 6])) == frozen_bytes(
        model, "bfloat16"
    ) + 2 * adapter_parameters(model, 10)


def test_a_run_takes_its_largest_stage_in_every_trainer_and_its_rollout_workers() -> None:
    spec = recipe()
    trainer = spec.trainer.model_copy(update={"workers": 3})
    rollout = spec.rollout.model_copy(update={"workers": 2})
    spec = spec.model_copy(update={"trainer": trainer, "rollout": rollout})
    plan = plan_run(spec)
    largest = max(stage.peak.total for stage in plan.stages)
    assert plan.memory == pytest.approx(3 * largest + 2 * plan.rollout_phase.total)
    assert own_cluster(spec).count == 3 * spec.trainer.threads + 2


def saved_by_autograd(model: HybridForCausalLM, ids: torch.Tensor) -> int:
    """Bytes that a forward pass keeps beside parameters."""
    parameters_ = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, int] = {}
    kept: list[torch.Tensor] = []  # so that no storage is given away twice

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters_:
            seen[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.routed(ids).hidden.flatten(0, 1)
        token_logprobs(hidden, model.head_weight, ids.flatten())
    return sum(seen.values())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", MOST_MODELS, ids=["dense", "experts"])
def test_activations_are_within_what_is_planned(
    config: HybridConfig, precision: torch.dtype
) -> None:
    model = HybridForCausalLM(config)
    if precision != torch.float32:
        model = model.copy_in(precision)
    ids = torch.randint(config.vocab_size, (8, 160))
    shape = read_config(config.to_dict(), "x")
    planned = KEPT * saved_bytes(shape, ids.numel(), checkpointing=False)["layers"]
    planned *= precision.itemsize / 2
    assert 0.75 * planned < saved_by_autograd(model, ids) <= planned


def test_time_of_a_step_follows_work_cores_and_precision() -> None:
    spec = recipe()
    model = plan_run(spec).model
    rl = RlStage(prompts_per_step=4, group_size=2)
    one = own_step_time(model, spec, rl, 100)
    assert [part.name for part in one.parts] == ["prefill", "decoding", "actor update"]
    update = one.parts[-1]
    assert update.flops == pytest.approx(8 * training(model, 100).total)
    assert update.seconds == pytest.approx(update.flops / (490e9 * 0.15))
    more = spec.trainer.model_copy(update={"threads": 2, "workers": 2})
    four = own_step_time(model, spec.model_copy(update={"trainer": more}), rl, 100)
    assert four.parts[-1].seconds == pytest.approx(update.seconds / 4)
    exact = spec.trainer.model_copy(update={"precision": "float32"})
    slow = own_step_time(model, spec.model_copy(update={"trainer": exact}), rl, 100)
    assert slow.parts[-1].seconds == pytest.approx(update.seconds / 0.22)
    ppo = RlStage(algorithm="ppo", kl_weight=0.1, epochs=2, prompts_per_step=4, group_size=2)
    parts = {part.name: part.flops for part in own_step_time(model, spec, ppo, 100).parts}
    assert parts["log-probs"] == parts["values"] == pytest.approx(8 * prefill(model, 100).total)
    assert parts["critic update"] == parts["actor update"] == pytest.approx(2 * update.flops)
    pairs = own_step_time(model, spec, DpoStage(batch_size=4), 100)
    assert pairs.parts[-1].flops == pytest.approx(update.flops)


def test_the_balancing_loss_costs_a_forward_pass_where_it_must_look_first() -> None:
    spec = recipe()
    mixed = {"experts": 4, "router_aux_weight": 0.01}
    spec = spec.model_copy(update={"model": spec.model.model_copy(update=mixed)})
    model = plan_run(spec).model
    rl = RlStage(prompts_per_step=4, group_size=2)

    def update(workers: int, tokens: int) -> float:
        how = {"workers": workers, "pack_tokens": tokens}
        asked = spec.model_copy(update={"trainer": spec.trainer.model_copy(update=how)})
        return own_step_time(model, asked, rl, 100).parts[-1].flops

    one_pass = 8 * training(model, 100).total
    looked = one_pass + 8 * prefill(model, 100).total
    assert update(1, 800) == pytest.approx(one_pass)
    assert update(1, 799) == update(2, 800) == pytest.approx(looked)


def test_shorter_trajectories_take_less_time_and_no_less_memory() -> None:
    spec = recipe()
    longest, mean = plan_run(spec), plan_run(spec, mean_length=86)
    assert mean.memory == longest.memory
    assert mean.seconds < longest.seconds
    assert mean.stages[1].tokens == 192 * 86
    # Measured on recorded batches of 192 trajectories of 86 tokens, without merging: 1.05 s.
    assert mean.stages[1].time.parts[-1].seconds == pytest.approx(1.05, rel=0.25)


def test_adapters_spare_the_gradients_of_frozen_weights() -> None:
    spec = recipe()
    model = plan_run(spec).model
    whole, adapted = (
        own_step_time(model, spec, SftStage(batch_size=8, lora=lora), 100).parts[-1].flops
        for lora in (None, LoraSpec(rank=4, alpha=8.0))
    )
    dense = training(model, 100).dense
    assert adapted == pytest.approx(whole - 8 * dense / 3)


@pytest.mark.parametrize(
    "path", sorted((CHECKOUT / "recipes").glob("*.yaml")), ids=lambda p: p.stem
)
def test_every_recipe_can_be_planned_and_advised(path: Path) -> None:
    spec = recipe(path.stem)
    plan = plan_run(spec)
    trained = [stage for stage in spec.stages if isinstance(stage, TrainedStage)]
    assert [stage.kind for stage in plan.stages] == [stage.kind for stage in trained]
    assert all(stage.time.seconds > 0 for stage in plan.stages)
    advice = advise_run(spec, own_cluster(spec))
    assert advice.suggested == "grpo"


def test_a_run_is_advised_on_any_cluster() -> None:
    spec = recipe()
    advice = advise_run(spec, own_cluster(spec))
    assert all(one.fits for one in advice.verdicts)
    assert advice.suggested == "grpo"
    case = advice.of("grpo").case
    assert (case.work.trajectories, case.work.context) == (192, 160)
