"""How long a step of Caravan's own processes takes on CPU cores: an estimate.

Each trainer process computes on its threads, each rollout worker on one core, both at once. What
the cores reach is measured on the quick start's machine and its model of a million parameters
(`docs/planner.md`); tools, evaluations and waiting for the pool are not in it, nor are prefixes
that samples share, which spare work.
"""

from engine.planner.architecture import Architecture
from engine.planner.devices import Cluster, read_cluster
from engine.planner.flops import prefill
from engine.planner.phases import Setup
from engine.planner.stages import (
    has_critic,
    passes_before,
    rows_of,
    sampled_of,
    teachers_of,
    updates_of,
)
from engine.planner.timing import (
    CPU_REACHED,
    Part,
    StepTime,
    Workload,
    learning_flops,
    sampling,
)
from engine.spec import ExperimentSpec, RlStage
from engine.spec.lineage import TrainedStage

FP32_SPEED = 0.22  # of bf16 products: 109 of 490 GFLOP/s, measured


def own_step_time(
    model: Architecture, spec: ExperimentSpec, stage: TrainedStage, length: int
) -> StepTime:
    """One step of a stage on trajectories of `length` tokens, all of them sampled."""
    rows, epochs = rows_of(stage), updates_of(stage)
    forward = rows * prefill(model, length).total
    looking = epochs * forward if _looks_first(spec, stage, length) else 0.0
    of_all = epochs * rows * learning_flops(model, length, adapters=False) + looking
    of_policy = epochs * rows * learning_flops(model, length, adapters=stage.lora is not None)
    of_policy += looking
    parts: list[Part] = []
    if sampled := sampled_of(stage):
        parts += _sampling(model, spec, sampled, length)
    asked = forward * passes_before(stage)
    if asked:
        parts.append(_trained("log-probs", asked, spec))
    if has_critic(stage):
        parts.append(_trained("values", forward, spec))
        parts.append(_trained("critic update", of_all, spec))
    if teachers := teachers_of(stage):
        parts.append(_trained("teachers", teachers * forward, spec))
    parts.append(_trained("actor update", of_policy, spec))
    return StepTime(tuple(parts), apart=True)


def _looks_first(spec: ExperimentSpec, stage: TrainedStage, length: int) -> bool:
    """Whether an update passes over its rows once more, to see how evenly experts are used."""
    updates = stage.minibatches if isinstance(stage, RlStage) else 1
    tokens = rows_of(stage) * length / updates
    several = spec.trainer.workers > 1 or tokens > spec.trainer.pack_tokens
    return several and bool(spec.model.router_aux_weight)


def _sampling(
    model: Architecture, spec: ExperimentSpec, rows: int, length: int
) -> tuple[Part, Part]:
    setup = Setup(slots=spec.rollout.slots)
    return sampling(model, _cores(spec.rollout.workers), setup, Workload(rows, length, length))


def _trained(name: str, flops: float, spec: ExperimentSpec) -> Part:
    cores = _cores(spec.trainer.workers * spec.trainer.threads)
    speed = CPU_REACHED.training * (FP32_SPEED if spec.trainer.precision == "float32" else 1)
    return Part(name, flops / (cores.count * cores.device.flops * speed), "arithmetic", flops)


def _cores(count: int) -> Cluster:
    return read_cluster("cpu").of(count)
