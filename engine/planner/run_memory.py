"""Memory of Caravan's own processes: a trainer through the phases of a stage, a rollout worker.

Every trainer process holds everything (ranks divide rows, not state): fp32 master weights and
gradients, the optimizer's state, a copy of the blocks in the type of products with its gradients
(embedding and head stay in fp32), the weights that are published to samplers; a critic is a
second learner; a reference and teachers are frozen copies, teachers of adapters on weights that
are held anyway adapters alone. Exact to the byte, which tests and
`caravan bench plan` compare with the trainer's tensors. Activations are an estimate: nothing is
recomputed but attention's scores, and a pass keeps KEPT times what fused kernels would.
"""

from dataclasses import dataclass

from engine.planner.activations import passing_bytes, saved_bytes
from engine.planner.architecture import (
    Architecture,
    Latent,
    Layer,
    Lightning,
    Mixer,
    Mlp,
    Softmax,
)
from engine.planner.devices import PROCESS_CONTEXT
from engine.planner.memory import memory
from engine.planner.parameters import parameters
from engine.planner.phases import FRAGMENTATION, Phase
from engine.planner.sizes import size_of
from engine.planner.stages import (
    HeldTeachers,
    has_critic,
    has_reference,
    passes_before,
    rows_of,
    teachers_held,
)
from engine.spec import ExperimentSpec, LoraSpec, OpdStage, OptimizerSpec, RlStage
from engine.spec.lineage import TrainedStage

FP32, BF16 = 4, 2
ADAMW_BYTES = 2 * FP32  # first and second moment of a parameter
MUON_BYTES = FP32  # momentum
KEPT = 1.8  # norms, rotary positions and gates are not fused: 1.4 to 1.8 times, measured
CHUNK_ROWS, CHUNK_LOGITS = 2048, 1 << 24  # of logits at once, as engine.models.logprobs cuts them
LOGIT_TENSORS = 3  # logits, their log-softmax, and a softmax or its gradient


@dataclass(frozen=True)
class TrainerMemory:
    """Bytes of one trainer process. `copy`: weights and gradients that products are computed in."""

    weights: int
    gradients: int
    optimizer: int
    copy: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.copy


@dataclass(frozen=True)
class RolloutMemory:
    """Bytes of one rollout worker; states, keys and values with every slot at full length."""

    weights: int
    states: int
    kv: int

    @property
    def total(self) -> int:
        return self.weights + self.states + self.kv


def trainer_memory(
    model: Architecture, precision: str, optimizer: OptimizerSpec, lora: LoraSpec | None = None
) -> TrainerMemory:
    """What a learner holds; of adapters alone there are gradients and moments."""
    total = parameters(model).total
    copied = 0
    if precision == "bfloat16":  # routers are copied as they are
        copied = BF16 * in_blocks(model) + FP32 * _routers(model)
    if lora is None:
        moments = optimizer_bytes(model, optimizer)
        return TrainerMemory(FP32 * total, FP32 * total, moments, 2 * copied)
    adapters = adapter_parameters(model, lora.rank)
    return TrainerMemory(
        weights=FP32 * (total + adapters),
        gradients=FP32 * adapters,
        optimizer=ADAMW_BYTES * adapters,
        copy=copied + 2 * BF16 * adapters if copied else 0,
    )


def adapter_parameters(model: Architecture, rank: int) -> int:
    """Of adapters on every matrix of the layers as our model holds them: q, k and v in one, gate
    and up in one."""
    return rank * sum(_fused_sides(layer, model.width) for layer in model.layers)


def _fused_sides(layer: Layer, width: int) -> int:
    """Rows and columns of a layer's matrices, added up."""
    mixer, mlp = layer.mixer, layer.mlp
    if isinstance(mixer, Latent):
        raise ValueError("Adapters are planned for softmax and lightning layers, not for latent.")
    inner = mixer.heads * mixer.head_dim
    fused = _qkv(mixer, width) // width + width
    gate = width + inner if isinstance(mixer, Lightning) else 0
    of_expert = (width + 2 * mlp.width) + (mlp.width + width)
    return fused + gate + inner + width + of_expert * max(1, mlp.experts)


def rollout_memory(model: Architecture, precision: str, slots: int, length: int) -> RolloutMemory:
    """What a sampler holds."""
    one = memory(model, length, cache_bytes=FP32)
    return RolloutMemory(frozen_bytes(model, precision), slots * one.state, slots * one.kv)


def critic_bytes(model: Architecture, precision: str, optimizer: OptimizerSpec) -> int:
    """A learner as large as the policy, with a value head of width + 1 in fp32 under AdamW."""
    head = model.width + 1
    own = trainer_memory(model, precision, optimizer).total
    return own + (2 * FP32 + ADAMW_BYTES) * head


def frozen_bytes(model: Architecture, precision: str) -> int:
    """A model that only computes: blocks in the type of products, embedding and head in fp32."""
    blocks = in_blocks(model)
    of_each = BF16 if precision == "bfloat16" else FP32
    return of_each * blocks + FP32 * (parameters(model).total - blocks)


def teacher_bytes(model: Architecture, precision: str, teachers: HeldTeachers) -> int:
    """Frozen models, and adapters in the type of products."""
    of_each = BF16 if precision == "bfloat16" else FP32
    adapters = sum(adapter_parameters(model, rank) for rank in teachers.ranks)
    return teachers.models * frozen_bytes(model, precision) + of_each * adapters


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


def in_blocks(model: Architecture) -> int:
    """Parameters that take the precision of products: all but embedding, head and routers."""
    count = parameters(model)
    return count.total - count.embedding - count.head - _routers(model)


def _routers(model: Architecture) -> int:
    return sum(model.width * layer.mlp.experts for layer in model.layers)


def trainer_phases(model: Architecture, spec: ExperimentSpec, index: int) -> tuple[Phase, ...]:
    """A trainer process through the phases of one step of the stage of this number."""
    precision, stage = spec.trainer.precision, spec.stages[index]
    assert isinstance(stage, TrainedStage)
    held = _held(model, spec, index)
    tokens = spec.trainer.pack_tokens
    wide = KEPT * (2 if precision == "float32" else 1)
    passing = {"layer": wide * passing_bytes(model, tokens)}
    kept = saved_bytes(model, tokens, checkpointing=False)
    updating = {name: wide * size for name, size in kept.items()}
    rows = min(tokens, CHUNK_ROWS, max(1, CHUNK_LOGITS // model.vocab_size))
    logits = {"logits": float(LOGIT_TENSORS * FP32 * rows * model.vocab_size)}
    phases = []
    if passes_before(stage):
        phases.append(_phase("log-prob pass", held, passing | logits))
    if "critic" in held:
        phases.append(_phase("critic pass", held, passing))
    if "teachers" in held:
        phases.append(_phase("teacher pass", held, passing))
    of_actor = logits | _taught(model, spec, stage, logits["logits"])
    phases.append(_phase("actor update", held, updating | of_actor))
    if "critic" in held:
        phases.append(_phase("critic update", held, updating))
    return tuple(phases)


def rollout_phase(model: Architecture, spec: ExperimentSpec) -> Phase:
    """A rollout worker while it samples with every slot at full length."""
    found = rollout_memory(
        model, spec.trainer.precision, spec.rollout.slots, spec.environment.max_tokens
    )
    parts: dict[str, float] = {
        "engine weights": found.weights,
        "keys and values": found.kv,
        "lightning states": found.states,
    }
    return _phase("rollout", parts, {})


def _held(model: Architecture, spec: ExperimentSpec, index: int) -> dict[str, float]:
    """What stays in a trainer's memory through all phases of a stage."""
    precision, stage = spec.trainer.precision, spec.stages[index]
    assert isinstance(stage, TrainedStage)
    own = trainer_memory(model, precision, stage.optimizer, stage.lora)
    held: dict[str, float] = {
        "weights": own.weights,
        "gradients": own.gradients,
        "moments": own.optimizer,
        "copy for products": own.copy,
        "published weights": FP32 * parameters(model).total,
    }
    if isinstance(stage, RlStage) and has_critic(stage):
        held["critic"] = critic_bytes(model, precision, stage.critic.optimizer)
    if has_reference(stage):
        held["reference"] = frozen_bytes(model, precision)
    if stage.teachers_from():
        held["teachers"] = teacher_bytes(model, precision, teachers_held(spec.stages, index))
    return held


def _taught(
    model: Architecture, spec: ExperimentSpec, stage: TrainedStage, logits: float
) -> dict[str, float]:
    """What distillation over the vocabulary adds: a teacher's distribution beside the student's,
    and the last hidden states of every trajectory under every teacher, at the most."""
    if not isinstance(stage, OpdStage) or stage.form != "full_vocabulary":
        return {}
    tokens = rows_of(stage) * spec.environment.max_tokens
    of_each = BF16 if spec.trainer.precision == "bfloat16" else FP32
    states = len(stage.teachers) * tokens * model.width * of_each
    return {"logits": 2 * logits, "teachers' states": float(states)}


def _phase(name: str, held: dict[str, float], working: dict[str, float]) -> Phase:
    parts = held | working
    parts["fragmentation"] = FRAGMENTATION * sum(parts.values())
    parts["context"] = PROCESS_CONTEXT
    return Phase(name, {part: size for part, size in parts.items() if size})


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
