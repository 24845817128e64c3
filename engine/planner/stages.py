"""What the stages of a specification ask of a trainer: rows, updates, passes, other models."""

from collections.abc import Sequence
from typing import NamedTuple

from engine.spec import OpdStage, RlStage
from engine.spec.base import SpecModel
from engine.spec.dpo import DpoStage
from engine.spec.lineage import TrainedStage, parent_of
from engine.spec.sampled import SampledStage


def sampled_of(stage: TrainedStage) -> int:
    """Trajectories that the policy samples for a step."""
    if isinstance(stage, SampledStage):
        return stage.prompts_per_step * stage.group_size
    return 0


def rows_of(stage: TrainedStage) -> int:
    """Sequences that a step trains on, at the most; a pair of DPO has two."""
    match stage:
        case OpdStage():
            return sampled_of(stage) + stage.demonstrations_per_step
        case SampledStage():
            return sampled_of(stage)
        case DpoStage():
            return 2 * stage.batch_size
    size: int = getattr(stage, "batch_size", 0)
    return size


def updates_of(stage: TrainedStage) -> int:
    """Times that each of them is gone through."""
    return stage.epochs if isinstance(stage, RlStage) else 1


def has_critic(stage: TrainedStage) -> bool:
    """Whether a stage trains a critic."""
    return isinstance(stage, RlStage) and stage.resolved().advantage == "gae"


def has_reference(stage: TrainedStage) -> bool:
    """Whether a frozen copy of the policy at the stage's start is held."""
    return isinstance(stage, RlStage) and bool(stage.kl_weight)


def teachers_of(stage: TrainedStage) -> int:
    """Frozen teachers that are asked."""
    return len(set(stage.teachers_from()))


class HeldTeachers(NamedTuple):
    """models: whole frozen models; ranks: of teachers held as adapters, on one of these models or
    on the student's own weights."""

    models: int
    ranks: list[int]


def teachers_held(stages: Sequence[SpecModel], index: int) -> HeldTeachers:
    """What of a stage's teachers is in memory, as `engine.training.teachers` shares it.

    Stages of adapters that begin with the final weights of one stage stand on one base.
    """
    student = stages[index]
    assert isinstance(student, TrainedStage)
    adapters: dict[int | None, list[int]] = {}
    models = 0
    for at in sorted(set(student.teachers_from())):
        lora = getattr(stages[at], "lora", None)
        if lora is None:
            models += 1
        else:
            adapters.setdefault(parent_of(stages, at), []).append(lora.rank)
    ranks: list[int] = []
    for base, found in adapters.items():
        if student.lora is not None and parent_of(stages, index) == base:
            ranks += found
        elif len(found) > 1 and base is not None:
            models += 1
            ranks += found
        else:
            models += len(found)
    return HeldTeachers(models, ranks)


def passes_before(stage: TrainedStage) -> int:
    """Log-prob passes before the updates: the policy's own, a reference's."""
    if isinstance(stage, DpoStage):
        return 1
    if isinstance(stage, RlStage):
        return _asks_old(stage) + has_reference(stage)
    return 0


def _asks_old(stage: RlStage) -> bool:
    """Whether the policy's own log-probabilities from before the first update are needed."""
    return (
        (stage.anchor == "old" and stage.updates_per_step > 1)
        or stage.resolved().correction == "geometric"
        or stage.drift_max is not None
        or (bool(stage.kl_weight) and stage.kl_place == "reward")
    )
