"""A spec on tiny amounts: every part starts and every stage takes one step, in about a minute.

What decides whether a run works at all stays as it is: environment, model, processes, precision,
algorithms, datasets, tokens in memory at once. What only takes time is cut.
"""

from typing import Any

from engine.spec.evaluate import EvaluateStage
from engine.spec.experiment import ExperimentSpec, Stage
from engine.spec.lineage import TrainedStage
from engine.spec.loading import SpecProblem, problems_of
from engine.spec.optimizer import OptimizerSpec
from engine.spec.practice import PracticeSpec
from engine.spec.rl import RlStage
from engine.spec.sampled import SampledStage
from engine.spec.synthesise import SynthesiseStage

TASKS = 20  # for each number of hops
DEMONSTRATIONS = 60
JUDGED = 10  # held-out tasks, and quick ones
TRIALS = 2
TRAJECTORIES = 8  # of a supervised step


def on_tiny_amounts(
    spec: ExperimentSpec, *, fork: bool = False
) -> tuple[ExperimentSpec | None, list[SpecProblem]]:
    """The reduced spec, or what of it cannot be honoured any more; exactly one is given.

    fork: it starts from a checkpoint, and what decides about tasks, which it takes from its parent,
    stays as it is; how many of them are played is the driver's part.

    Dynamic sampling is off in it: an untrained policy's rewards are mostly equal, and a run would
    sample for ever. So is what ends a stage early.
    """
    data = spec.model_dump(mode="json")
    data["stages"] = [
        stage.model_dump(mode="json")
        if fork and isinstance(stage, SynthesiseStage)
        else _stage(stage, spec)
        for stage in spec.stages
    ]
    data["evaluation"]["trials"] = min(spec.evaluation.trials, TRIALS)
    if not fork:
        data["evaluation"] |= {
            "tasks": min(spec.evaluation.tasks, JUDGED),
            "quick_tasks": min(spec.evaluation.quick_tasks, JUDGED),
        }
    sampled = [stage for stage in spec.stages if isinstance(stage, SampledStage)]
    groups = max((_prompts(stage, spec) for stage in sampled), default=1)
    data["rollout"]["slots"] = min(
        spec.rollout.slots, max([*(stage.group_size for stage in sampled), TRAJECTORIES])
    )
    data["pool"]["capacity"] = min(spec.pool.capacity, 2 * groups)
    data["pool"]["gate"]["max_wait_s"] = min(spec.pool.gate.max_wait_s, 1.0)
    data["checkpoint"] = {"every_steps": 1, "keep": 1}
    return problems_of(data)


def _stage(stage: Stage, spec: ExperimentSpec) -> dict[str, Any]:
    data = stage.model_dump(mode="json")
    if isinstance(stage, SynthesiseStage):
        return data | {
            "tasks": {hops: min(count, TASKS) for hops, count in stage.tasks.items()},
            "demonstrations": {
                hops: min(count, DEMONSTRATIONS) for hops, count in stage.demonstrations.items()
            },
        }
    if isinstance(stage, EvaluateStage):
        return data | {
            "number": None if stage.number is None else min(stage.number, JUDGED),
            "position": None if stage.position is None else 0,
            "trials": min(stage.trials, TRIALS),
        }
    assert isinstance(stage, TrainedStage)
    data |= {"steps": 1, "optimizer": _optimizer(stage.optimizer)}
    if isinstance(stage, SampledStage):
        data |= {"prompts_per_step": _prompts(stage, spec), "stop_at_completion": None}
    else:
        data["batch_size"] = min(data["batch_size"], max(TRAJECTORIES, spec.trainer.workers))
    if isinstance(stage, RlStage):
        data |= {
            "dynamic_sampling": False,
            "refill_rounds": None,
            "minibatches": min(stage.minibatches, data["prompts_per_step"]),
        }
        if stage.resolved().advantage == "gae":  # others refuse a critic of their own
            optimizer = _optimizer(stage.critic.optimizer)
            data["critic"] |= {"optimizer": optimizer, "warmup_steps": 0}
    if isinstance(practice := getattr(stage, "practice", None), PracticeSpec):
        plays = getattr(stage, "dataset", None) is None
        data["practice"]["tasks"] = min(practice.tasks, TASKS) if plays else practice.tasks
    if "judged_tasks" in data:
        data["judged_tasks"] = min(data["judged_tasks"], JUDGED)
    return data


def _optimizer(optimizer: OptimizerSpec) -> dict[str, Any]:
    return optimizer.model_dump(mode="json") | {"warmup_steps": 0}


def _prompts(stage: SampledStage, spec: ExperimentSpec) -> int:
    """Enough for every category and every trainer process."""
    categories = len(stage.hops if stage.draws_tasks() else spec.pool.gate.shares)
    return min(stage.prompts_per_step, max(2, categories, spec.trainer.workers))
