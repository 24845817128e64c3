"""Pairs of fields that are each valid and cannot both be honoured."""

from collections.abc import Iterator
from statistics import NormalDist

from engine.spec import dpo, evaluate, lineage, opd, optimizer, rewards, rl, sft
from engine.spec.base import Disagreement, hop_category
from engine.spec.datasets import datasets_of
from engine.spec.dpo import DpoStage
from engine.spec.evaluate import EvaluateStage
from engine.spec.experiment import ExperimentSpec, ModelSpec
from engine.spec.opd import OpdStage
from engine.spec.rl import RlStage
from engine.spec.sampled import SampledStage
from engine.spec.sft import SftStage
from engine.spec.synthesise import SynthesiseStage


def disagreements(spec: ExperimentSpec) -> list[Disagreement]:
    """Every set of fields in the spec that cannot be honoured together."""
    return [
        *_of_model(spec),
        *_of_environment(spec),
        *_of_gate(spec),
        *_of_evaluation(spec),
        *_of_stages(spec),
        *rewards.disagreements_of(spec),
    ]


def _of_model(spec: ExperimentSpec) -> Iterator[Disagreement]:
    yield from _of_head_width(spec.model)
    yield from _of_softmax(spec.model)
    yield from _of_experts(spec.model)


def _of_head_width(model: ModelSpec) -> Iterator[Disagreement]:
    width, heads = model.width, model.heads
    if model.head_dim is not None:
        return
    if width % heads:
        yield Disagreement(
            f"A width of {width} cannot be split into {heads} heads: width must be a multiple.",
            ("model.width", "model.heads"),
        )
    elif (width // heads) % 2:
        yield Disagreement(
            f"A width of {width} in {heads} heads gives a head dim of {width // heads}; rotary "
            "positions need an even one.",
            ("model.width", "model.heads"),
        )


def _of_softmax(model: ModelSpec) -> Iterator[Disagreement]:
    for name in ("kv_heads", "rotary_dim"):
        if getattr(model, name) is not None and "softmax" not in model.layers:
            yield Disagreement(
                f"{name} is of softmax layers, and no layer is one: leave it empty.",
                (f"model.{name}", "model.layers"),
            )
    if model.kv_heads and model.heads % model.kv_heads:
        yield Disagreement(
            f"{model.heads} heads cannot share {model.kv_heads} keys evenly: heads must be a "
            "multiple of kv_heads.",
            ("model.kv_heads", "model.heads"),
        )
    dim = model.head_dim or model.width // model.heads
    if model.rotary_dim and model.rotary_dim > dim:
        yield Disagreement(
            f"A head has {dim} dimensions; {model.rotary_dim} of them cannot be rotated.",
            ("model.rotary_dim", "model.head_dim" if model.head_dim else "model.heads"),
        )


def _of_experts(model: ModelSpec) -> Iterator[Disagreement]:
    each = model.experts_per_token
    if model.experts == 1:
        for name in ("experts_per_token", "router_aux_weight"):
            if getattr(model, name):
                yield Disagreement(
                    f"{name} is of a router, and one expert has none: take more experts, or leave "
                    "it out.",
                    (f"model.{name}", "model.experts"),
                )
        return
    if each and each > model.experts:
        yield Disagreement(
            f"A token cannot be sent to {each} of {model.experts} experts.",
            ("model.experts_per_token", "model.experts"),
        )


def _of_environment(spec: ExperimentSpec) -> Iterator[Disagreement]:
    environment = spec.environment
    if environment.max_turn_tokens > environment.max_tokens:
        yield Disagreement(
            f"A turn may have {environment.max_turn_tokens} tokens, a whole trajectory only "
            f"{environment.max_tokens}.",
            ("environment.max_turn_tokens", "environment.max_tokens"),
        )
    most = max(spec.evaluation.hops)
    if most > environment.max_calls and spec.evaluation.dataset is None:
        yield Disagreement(
            f"A task of {most} hops needs {most} calls; an episode may make only "
            f"{environment.max_calls}.",
            ("evaluation.hops", "environment.max_calls"),
        )


def _of_gate(spec: ExperimentSpec) -> Iterator[Disagreement]:
    shares = spec.pool.gate.shares
    if shares and sum(shares.values()) < 1:
        yield Disagreement(
            f"The shares add up to {sum(shares.values()):.2f}: no batch could be filled; they "
            "must add up to at least 1.",
            ("pool.gate.shares",),
        )


def _of_evaluation(spec: ExperimentSpec) -> Iterator[Disagreement]:
    how = spec.evaluation
    if how.dataset is not None and how.hops != type(how).model_fields["hops"].default:
        yield Disagreement(
            "Evaluations on a dataset play its tasks whatever their hops and do not read hops: "
            "leave it out, or leave dataset empty.",
            ("evaluation.hops", "evaluation.dataset"),
        )
    for use in datasets_of(spec):
        if use.stage is not None and use.version == how.dataset:
            yield Disagreement(
                "The run would be judged on the tasks that it trains on: name two datasets, or "
                "leave one of them empty.",
                (use.path, "evaluation.dataset"),
            )
    yield from evaluate.trial_disagreements(
        how.trials, how.temperature, spec.rollout.slots, "evaluation"
    )


def _of_stages(spec: ExperimentSpec) -> Iterator[Disagreement]:
    first = spec.stages[0]
    if not isinstance(first, SynthesiseStage):
        yield Disagreement(
            f"The first stage is {first.kind}; it must be synthesise, which draws the tasks of "
            "the others.",
            ("stages.0.kind",),
        )
        return
    yield from _of_synthesis(spec, first)
    yield from lineage.disagreements_of(spec.stages)
    for index, stage in enumerate(spec.stages[1:], start=1):
        path = f"stages.{index}"
        if isinstance(stage, SynthesiseStage):
            yield Disagreement(
                "A run synthesises once, in its first stage: remove this stage.", (f"{path}.kind",)
            )
            continue
        if isinstance(stage, EvaluateStage):
            yield from evaluate.disagreements_of(stage, path, spec)
            continue
        if stage.optimizer.warmup_steps > stage.steps:
            yield Disagreement(
                f"{stage.optimizer.warmup_steps} steps of warm-up do not fit into {stage.steps} "
                "steps of training.",
                (f"{path}.optimizer.warmup_steps", f"{path}.steps"),
            )
        layers = spec.model.layers
        yield from optimizer.disagreements_of(stage.optimizer, layers, f"{path}.optimizer")
        if isinstance(stage, SftStage):
            yield from sft.disagreements_of(stage, first, spec.rollout.slots, path)
        if isinstance(stage, DpoStage):
            yield from dpo.disagreements_of(stage, first, spec.rollout.slots, path)
        if isinstance(stage, SampledStage):
            yield from _of_sampled(spec, first, stage, path)
        if isinstance(stage, RlStage):
            trained = lineage.parent_of(spec.stages, index) is not None
            yield from rl.disagreements_of(stage, path, trained_before=trained)
            critic = stage.critic.optimizer
            yield from optimizer.disagreements_of(critic, layers, f"{path}.critic.optimizer")
        if isinstance(stage, OpdStage):
            yield from opd.disagreements_of(spec.stages, index, stage, first)


def _of_synthesis(spec: ExperimentSpec, stage: SynthesiseStage) -> Iterator[Disagreement]:
    asked = {hops for hops, count in stage.tasks.items() if count}
    shown = {hops for hops, count in stage.demonstrations.items() if count}
    if missing := sorted(shown - asked):
        yield Disagreement(
            f"Demonstrations of {_or(missing)} hops are asked for, but no tasks of that length.",
            ("stages.0.demonstrations", "stages.0.tasks"),
        )
    too_long = sorted(hops for hops in asked if int(hops) > spec.environment.max_calls)
    if too_long:
        yield Disagreement(
            f"Tasks of {_or(too_long)} hops need as many calls; an episode may make only "
            f"{spec.environment.max_calls}.",
            ("stages.0.tasks", "environment.max_calls"),
        )


def _of_stop(spec: ExperimentSpec, stage: SampledStage, path: str) -> Iterator[Disagreement]:
    """A rule that could never end the stage."""
    wanted, judged = stage.stop_at_completion, spec.evaluation
    if wanted is None:
        return
    if stage.steps <= judged.every_steps:
        yield Disagreement(
            f"The quick tasks are played every {judged.every_steps} steps, and the stage has "
            f"{stage.steps}: it would end before it could stop.",
            (f"{path}.stop_at_completion", "evaluation.every_steps"),
        )
    best = judged.quick_tasks / (judged.quick_tasks + NormalDist().inv_cdf(0.975) ** 2)  # Wilson's
    if wanted > best:
        yield Disagreement(
            f"All {judged.quick_tasks} quick tasks solved would still have a lower end of "
            f"{best:.3f}, below {wanted:g}: ask for less, or play more of them.",
            (f"{path}.stop_at_completion", "evaluation.quick_tasks"),
        )


def _of_sampled(
    spec: ExperimentSpec, first: SynthesiseStage, stage: SampledStage, path: str
) -> Iterator[Disagreement]:
    if not stage.draws_tasks() and stage.hops != SampledStage.model_fields["hops"].default:
        yield Disagreement(
            "A stage that trains on the tasks of a dataset trains on all of them and does not read "
            "hops: leave it out, or leave dataset empty.",
            (f"{path}.hops", f"{path}.dataset"),
        )
    missing = sorted(str(hops) for hops in stage.hops if not first.tasks.get(str(hops)))
    if missing and stage.draws_tasks():
        yield Disagreement(
            f"This stage trains on tasks of {_or(missing)} hops; the first stage draws none.",
            (f"{path}.hops", "stages.0.tasks"),
        )
    yield from _of_stop(spec, stage, path)
    if stage.prompts_per_step > spec.pool.capacity:
        yield Disagreement(
            f"A batch takes {stage.prompts_per_step} groups, the pool holds at most "
            f"{spec.pool.capacity}: it would never be filled.",
            (f"{path}.prompts_per_step", "pool.capacity"),
        )
    if stage.group_size > spec.rollout.slots:
        yield Disagreement(
            f"A group has {stage.group_size} trajectories, a worker keeps at most "
            f"{spec.rollout.slots} in flight: a group must fit into one worker.",
            (f"{path}.group_size", "rollout.slots"),
        )
    made = {hop_category(hops) for hops in stage.hops}
    named = set(spec.pool.gate.shares)
    if named and stage.draws_tasks() and (strange := sorted(named ^ made)):
        yield Disagreement(
            f"The gate gives shares to {_or(sorted(named))}, the stage makes {_or(sorted(made))}: "
            f"{_or(strange)} stands on one side only.",
            ("pool.gate.shares", f"{path}.hops"),
        )


def _or(words: list[str]) -> str:
    return " or ".join(words)
