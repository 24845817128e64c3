"""What a specification's run takes: memory by component, FLOPs, and tokens at the most.

Only what the specification decides: activations, snapshots of states and the pool come on top, and
trajectories that end early, shared prefixes and skipped groups take away. Bytes are those of the
trainer and the sampler as they are: fp32 master weights and gradients, a copy in the precision of
products with the embedding (and head) left in fp32, keys and values in fp32.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.planner.architecture import Architecture, Latent, Lightning, Mixer, Mlp, Softmax
from engine.planner.configs import from_spec
from engine.planner.flops import generation, next_token, prefill, training
from engine.planner.memory import memory
from engine.planner.parameters import Parameters, parameters
from engine.planner.sizes import size_of
from engine.spec import ExperimentSpec, OpdStage, OptimizerSpec, SftStage
from engine.spec.sampled import SampledStage

FP32, BF16 = 4, 2
ADAMW_BYTES = 2 * FP32  # first and second moment of a parameter
MUON_BYTES = FP32  # momentum


@dataclass(frozen=True)
class TrainerMemory:
    """Bytes of one trainer process. `copy`: weights and gradients that products are computed in;
    teachers: of the stage that has most of them."""

    weights: int
    gradients: int
    optimizer: int
    copy: int
    teachers: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.copy + self.teachers


@dataclass(frozen=True)
class RolloutMemory:
    """Bytes of one rollout worker; states, keys and values with every slot at full length."""

    weights: int
    states: int
    kv: int

    @property
    def total(self) -> int:
        return self.weights + self.states + self.kv


@dataclass(frozen=True)
class StagePlan:
    """Upper bounds of one stage that trains. FLOPs of a step; generation only where it samples."""

    kind: str
    steps: int
    trajectories: int  # of a step
    tokens: int  # of a step
    training_flops: float
    generation_flops: float


@dataclass(frozen=True)
class RunPlan:
    """FLOPs of one trained and one generated token are those of trajectories of full length."""

    model: Architecture
    parameters: Parameters
    length: int  # tokens of the longest trajectory
    slots: int  # trajectories that a rollout worker keeps in flight
    trainer: TrainerMemory
    rollout: RolloutMemory
    trained_token_flops: float
    generated_token_flops: float
    stages: tuple[StagePlan, ...]

    def figures(self) -> dict[str, Any]:
        """The plan as plain numbers, without the model's layers."""
        return {
            "parameters": asdict(self.parameters),
            "length": self.length,
            "slots": self.slots,
            "trainer": {**asdict(self.trainer), "total": self.trainer.total},
            "rollout": {**asdict(self.rollout), "total": self.rollout.total},
            "trained_token_flops": self.trained_token_flops,
            "generated_token_flops": self.generated_token_flops,
            "stages": [asdict(stage) for stage in self.stages],
        }


def plan_run(spec: ExperimentSpec) -> RunPlan:
    """The plan of a valid specification; where its stages differ, the larger optimizer counts."""
    model = from_spec(spec.model, spec.name)
    length = spec.environment.max_tokens
    stages = [stage for stage in spec.stages if isinstance(stage, SftStage | SampledStage)]
    return RunPlan(
        model=model,
        parameters=parameters(model),
        length=length,
        slots=spec.rollout.slots,
        trainer=_trainer(model, spec.trainer.precision, stages),
        rollout=_rollout(model, spec.trainer.precision, spec.rollout.slots, length),
        trained_token_flops=training(model, length).total / length,
        generated_token_flops=next_token(model, length).total,
        stages=tuple(_stage(model, stage, length) for stage in stages),
    )


def optimizer_bytes(model: Architecture, spec: OptimizerSpec) -> int:
    """State of the optimizer: AdamW for everything, or Muon for the layers' matrices."""
    total = parameters(model).total
    if spec.kind == "adamw":
        return ADAMW_BYTES * total
    matrices = int(size_of(model, rank=0).matrices)
    # Where a parameter holds several matrices, Muon works on copies of their values; q, k and v
    # lie interleaved, so that their gradients are copied as well.
    qkv = sum(_qkv(layer.mixer, model.width) for layer in model.layers)
    stacked = sum(_stacked(layer.mlp, model.width) for layer in model.layers)
    copies = FP32 * (2 * qkv + stacked)
    return ADAMW_BYTES * (total - matrices) + MUON_BYTES * matrices + copies


def _trainer(
    model: Architecture, precision: str, stages: Sequence[SftStage | SampledStage]
) -> TrainerMemory:
    count = parameters(model)
    copied = _in_blocks(model) if precision == "bfloat16" else 0
    return TrainerMemory(
        weights=FP32 * count.total,
        gradients=FP32 * count.total,
        optimizer=max((optimizer_bytes(model, one.optimizer) for one in stages), default=0),
        copy=2 * BF16 * copied,
        teachers=max((len(one.teachers_from()) for one in stages), default=0)
        * _frozen(model, precision),
    )


def _rollout(model: Architecture, precision: str, slots: int, length: int) -> RolloutMemory:
    one = memory(model, length, cache_bytes=FP32)
    return RolloutMemory(
        weights=_frozen(model, precision),
        states=slots * one.state,
        kv=slots * one.kv,
    )


def _frozen(model: Architecture, precision: str) -> int:
    """Bytes of the weights alone, blocks in the type of products and the rest in fp32."""
    blocks = _in_blocks(model)
    of_each = BF16 if precision == "bfloat16" else FP32
    return of_each * blocks + FP32 * (parameters(model).total - blocks)


def _stage(model: Architecture, stage: SftStage | SampledStage, length: int) -> StagePlan:
    asked = 0.0  # of teachers, each of which reads every trajectory at the most
    if isinstance(stage, SampledStage):
        trajectories = sampled = stage.prompts_per_step * stage.group_size
        if isinstance(stage, OpdStage):
            trajectories += stage.demonstrations_per_step
            asked = len(stage.teachers) * prefill(model, length).total
    else:
        trajectories, sampled = stage.batch_size, 0
    return StagePlan(
        kind=stage.kind,
        steps=stage.steps,
        trajectories=trajectories,
        tokens=trajectories * length,
        training_flops=trajectories * (training(model, length).total + asked),
        generation_flops=sampled * generation(model, length).total,
    )


def _in_blocks(model: Architecture) -> int:
    """Parameters that take the precision of products: all but embedding, head and routers."""
    count = parameters(model)
    routers = sum(model.width * layer.mlp.experts for layer in model.layers)
    return count.total - count.embedding - count.head - routers


def _qkv(mixer: Mixer, width: int) -> int:
    match mixer:
        case Softmax():
            return width * mixer.head_dim * (mixer.heads + 2 * mixer.kv_heads)
        case Lightning():
            return width * mixer.head_dim * 3 * mixer.heads
        case Latent():
            return 0


def _stacked(mlp: Mlp, width: int) -> int:
    """Gate and up of a dense MLP; all three matrices of experts."""
    return width * mlp.width * (3 * mlp.experts if mlp.experts else 2)
