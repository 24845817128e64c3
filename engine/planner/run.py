"""What a specification's run takes: memory by phase, FLOPs, time, and tokens at the most.

Trajectories that end early, shared prefixes and skipped groups take away; snapshots of states,
the pool and evaluations come on top.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.planner.advice import Advice, advise
from engine.planner.architecture import Architecture
from engine.planner.cases import Asked
from engine.planner.configs import from_spec
from engine.planner.devices import Cluster, read_cluster
from engine.planner.flops import generation, next_token, training
from engine.planner.parameters import Parameters, parameters
from engine.planner.phases import Phase
from engine.planner.report import phase_figures, time_figures
from engine.planner.run_memory import (
    RolloutMemory,
    TrainerMemory,
    rollout_memory,
    rollout_phase,
    trainer_memory,
    trainer_phases,
)
from engine.planner.run_time import own_step_time
from engine.planner.stages import rows_of, sampled_of, updates_of
from engine.planner.timing import StepTime, learning_flops
from engine.spec import ExperimentSpec
from engine.spec.lineage import TrainedStage
from engine.spec.sampled import SampledStage


@dataclass(frozen=True)
class StagePlan:
    """Upper bounds of one stage that trains. FLOPs of a step; generation only where it samples.
    phases: of a trainer process; time: an estimate."""

    kind: str
    steps: int
    trajectories: int  # of a step
    tokens: int  # of a step
    training_flops: float
    generation_flops: float
    phases: tuple[Phase, ...]
    time: StepTime

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.total)


@dataclass(frozen=True)
class RunPlan:
    """FLOPs of one trained and one generated token are those of trajectories of full length.
    memory: bytes of all trainers and rollout workers together, at the largest stage."""

    model: Architecture
    parameters: Parameters
    length: int  # tokens of the longest trajectory
    slots: int  # trajectories that a rollout worker keeps in flight
    trainer: TrainerMemory
    rollout: RolloutMemory
    rollout_phase: Phase
    trained_token_flops: float
    generated_token_flops: float
    stages: tuple[StagePlan, ...]
    memory: float

    @property
    def seconds(self) -> float:
        """All steps of all stages, one after the other."""
        return sum(stage.steps * stage.time.seconds for stage in self.stages)

    def figures(self) -> dict[str, Any]:
        """The plan as plain numbers, without the model's layers."""
        return {
            "parameters": asdict(self.parameters),
            "length": self.length,
            "slots": self.slots,
            "trainer": {**asdict(self.trainer), "total": self.trainer.total},
            "rollout": {**asdict(self.rollout), "total": self.rollout.total},
            "rollout_phase": phase_figures(self.rollout_phase),
            "trained_token_flops": self.trained_token_flops,
            "generated_token_flops": self.generated_token_flops,
            "stages": [_stage_figures(stage) for stage in self.stages],
            "memory": self.memory,
            "seconds": self.seconds,
        }


def plan_run(spec: ExperimentSpec, mean_length: int | None = None) -> RunPlan:
    """The plan of a valid specification; where its stages differ, the larger optimizer counts.

    mean_length: tokens of a trajectory on average, where they are known: time and FLOPs are those
    of such trajectories then, memory stays that of the longest.
    """
    model = from_spec(spec.model, spec.name)
    longest = spec.environment.max_tokens
    length = min(longest, mean_length or longest)
    trained = [stage for stage in spec.stages if isinstance(stage, TrainedStage)]
    precision, slots = spec.trainer.precision, spec.rollout.slots
    numbers = [at for at, stage in enumerate(spec.stages) if isinstance(stage, TrainedStage)]
    stages = tuple(_stage(model, spec, index, length) for index in numbers)
    sampler = rollout_phase(model, spec)
    trainers = spec.trainer.workers * max((one.peak.total for one in stages), default=0.0)
    return RunPlan(
        model=model,
        parameters=parameters(model),
        length=longest,
        slots=slots,
        trainer=max(
            (trainer_memory(model, precision, one.optimizer, one.lora) for one in trained),
            key=lambda memory: memory.total,
            default=TrainerMemory(0, 0, 0, 0),
        ),
        rollout=rollout_memory(model, precision, slots, longest),
        rollout_phase=sampler,
        trained_token_flops=training(model, length).total / length,
        generated_token_flops=next_token(model, length).total,
        stages=stages,
        memory=trainers + spec.rollout.workers * sampler.total,
    )


def own_cluster(spec: ExperimentSpec) -> Cluster:
    """The CPU cores that the run's processes would keep busy, as devices."""
    cores = spec.trainer.workers * spec.trainer.threads + spec.rollout.workers
    return read_cluster("cpu").of(cores)


def advise_run(spec: ExperimentSpec, cluster: Cluster) -> Advice:
    """Advice for the model and the trajectories of a specification on a cluster; half of the
    tokens sampled. Its first stage of practice says how many trajectories there are."""
    trained = [stage for stage in spec.stages if isinstance(stage, TrainedStage)]
    sampled = [stage for stage in trained if isinstance(stage, SampledStage)]
    longest = spec.environment.max_tokens
    asked = Asked(context=longest, sampled=longest // 2)
    for stage in [*sampled, *trained][:1]:
        asked = replace(asked, optimizer="lora" if stage.lora else stage.optimizer.kind)
        if stage.lora:
            asked = replace(asked, lora_rank=stage.lora.rank)
    for practice in sampled[:1]:
        asked = replace(asked, prompts=practice.prompts_per_step, group=practice.group_size)
    return advise(from_spec(spec.model, spec.name), cluster, asked)


def _stage(model: Architecture, spec: ExperimentSpec, index: int, length: int) -> StagePlan:
    stage = spec.stages[index]
    assert isinstance(stage, TrainedStage)
    rows = rows_of(stage)
    return StagePlan(
        kind=stage.kind,
        steps=stage.steps,
        trajectories=rows,
        tokens=rows * length,
        training_flops=updates_of(stage)
        * rows
        * learning_flops(model, length, adapters=stage.lora is not None),
        generation_flops=sampled_of(stage) * generation(model, length).total,
        phases=trainer_phases(model, spec, index),
        time=own_step_time(model, spec, stage, length),
    )


def _stage_figures(stage: StagePlan) -> dict[str, Any]:
    plain = ("kind", "steps", "trajectories", "tokens", "training_flops", "generation_flops")
    return {
        **{name: getattr(stage, name) for name in plain},
        "phases": [phase_figures(phase) for phase in stage.phases],
        "time": time_figures(stage.time),
    }
