"""What Caravan's trainer really holds and takes on this CPU, to put beside what is planned."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from bench._timing import interleaved_min_cpu_seconds
from engine.algorithms.batch import collate
from engine.algorithms.tokens import Terms
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.logprobs import token_logprobs
from engine.planner import read_config
from engine.planner.activations import saved_bytes
from engine.planner.configs import from_spec
from engine.planner.run_memory import KEPT, critic_bytes, frozen_bytes, trainer_memory
from engine.planner.run_time import own_step_time
from engine.records.trajectory import Segment
from engine.spec import (
    EnvironmentSpec,
    ExperimentSpec,
    ModelSpec,
    OptimizerSpec,
    RlStage,
    SftStage,
    SynthesiseStage,
    TrainerSpec,
)
from engine.training.learner import Learner
from engine.training.trainer import Seen, Trainer

ROWS, LENGTH = (
    64,
    86,
)  # of a measured step; the quick start's trajectories have 86 tokens on average
MODELS = {
    "quick start": ModelSpec(),
    "grouped heads, own head": ModelSpec(kv_heads=2, tie_embeddings=False),
    "4 experts": ModelSpec(experts=4, experts_per_token=2),
}


@dataclass(frozen=True)
class Compared:
    """Bytes of tensors, and those planned."""

    what: str
    held: int
    planned: int


def states() -> Iterator[Compared]:
    """Policy, critic and reference of every model, optimizer and precision."""
    for name, model in MODELS.items():
        for precision in ("float32", "bfloat16"):
            for kind in ("adamw", "muon"):
                yield from _of_trainer(f"{name}, {precision}, {kind}", model, precision, kind)


def activations() -> Iterator[tuple[str, float]]:
    """What autograd keeps of a forward pass, as a share of what is planned."""
    for name, model in MODELS.items():
        config = HybridConfig.from_spec(model, model.vocab_size, pad_id=0, end_id=1)
        planned = (
            KEPT
            * saved_bytes(read_config(config.to_dict(), name), ROWS * LENGTH, checkpointing=False)[
                "layers"
            ]
        )
        for precision in (torch.float32, torch.bfloat16):
            built = HybridForCausalLM(config)
            if precision != torch.float32:
                built = built.copy_in(precision)
            share = _kept(built, config.vocab_size) / (planned * precision.itemsize / 2)
            yield f"{name}, {str(precision).removeprefix('torch.')}", share


def step_seconds() -> tuple[float, float]:
    """CPU seconds of a supervised step of the quick start's model, measured and planned."""
    spec = _spec(ModelSpec(), "bfloat16", SftStage(batch_size=ROWS))
    stage = spec.stages[1]
    assert isinstance(stage, SftStage)
    trainer = _trainer(spec)
    trainer.begin(stage)
    rng = np.random.default_rng(0)
    segments = []
    for _ in range(ROWS):
        ids = rng.integers(0, spec.model.vocab_size, LENGTH).tolist()
        mask = [False] + [True] * (LENGTH - 1)
        segments.append(Segment(ids, mask, [0.0] * LENGTH, [0] * LENGTH))
    batch = collate(segments)

    def likelihood(seen: Seen) -> Terms:
        found = seen.tokens.logprobs
        return Terms(-found / batch.loss_tokens, torch.zeros_like(found, dtype=torch.int8))

    def step() -> None:
        trainer.update(batch, range(ROWS), likelihood, 1.0)

    measured = interleaved_min_cpu_seconds({"step": step}, repeats=5, warm_up=2)["step"]
    model = from_spec(spec.model, spec.name)
    precision = str(trainer.dtype).removeprefix("torch.")
    return measured, own_step_time(
        model, _spec(spec.model, precision, stage), stage, LENGTH
    ).seconds


def _of_trainer(what: str, model: ModelSpec, precision: str, kind: str) -> Iterator[Compared]:
    optimizer = OptimizerSpec(kind=kind)  # type: ignore[arg-type]
    stage = RlStage(algorithm="ppo", kl_weight=0.1, optimizer=optimizer)
    trainer = _trainer(_spec(model, precision, stage))
    trainer.begin(stage)
    precision = str(trainer.dtype).removeprefix("torch.")  # fp32 where bf16 is slower just now
    shape = from_spec(model, what)
    planned = trainer_memory(shape, precision, optimizer)
    yield Compared(f"policy: {what}", _learner_bytes(trainer.policy), planned.total)
    assert trainer.critic is not None and trainer.reference is not None
    critic = critic_bytes(shape, precision, stage.critic.optimizer)
    yield Compared(f"critic: {what}", _learner_bytes(trainer.critic._learner), critic)
    held = _held(*trainer.reference.parameters())
    yield Compared(f"reference: {what}", held, frozen_bytes(shape, precision))


def _spec(model: ModelSpec, precision: str, stage: SftStage | RlStage) -> ExperimentSpec:
    return ExperimentSpec(
        name="plan",
        model=model,
        environment=EnvironmentSpec(max_tokens=160),
        stages=[SynthesiseStage(), stage],
        trainer=TrainerSpec(precision=precision, tree_merge="off"),  # type: ignore[arg-type]
    )


def _trainer(spec: ExperimentSpec) -> Trainer:
    return Trainer(
        spec, HybridConfig.from_spec(spec.model, spec.model.vocab_size, pad_id=0, end_id=1)
    )


def _learner_bytes(learner: Learner) -> int:
    """Tensors that a learner keeps after an update; a copy's gradients are as large as itself."""
    own = list(learner.model.parameters())
    if learner.head is not None:
        own += learner.head.parameters()
    for parameter in own:
        parameter.grad = torch.ones_like(parameter)
    masters = {id(parameter) for parameter in own}
    copied = [one for one in learner.compute.parameters() if id(one) not in masters]
    optimizer = learner.running_optimizer
    optimizer.step()
    moments = [
        tensor
        for name, tensor in optimizer.tensors().items()
        if tensor.dim() and not name.endswith("step")
    ]
    pieces = [piece for matrix in optimizer._fused for piece in matrix.pieces]
    gradients = [*(one.grad for one in own), *(piece.grad for piece in pieces)]
    return _held(*own, *copied, *moments, *pieces, *gradients) + _held(*copied)


def _kept(model: HybridForCausalLM, vocabulary: int) -> int:
    """Bytes that a forward pass keeps beside parameters."""
    parameters = {one.untyped_storage().data_ptr() for one in model.parameters()}
    seen: dict[int, int] = {}
    kept: list[torch.Tensor] = []  # so that no storage is given away twice

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            seen[storage.data_ptr()] = storage.nbytes()
        kept.append(tensor)
        return tensor

    ids = torch.randint(vocabulary, (ROWS, LENGTH))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.routed(ids).hidden.flatten(0, 1)
        token_logprobs(hidden, model.head_weight, ids.flatten())
    return sum(seen.values())


def _held(*tensors: torch.Tensor | None) -> int:
    """Bytes behind tensors, each storage once."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
