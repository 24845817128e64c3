"""The versions of stored datasets that a spec names, and who reads them."""

from dataclasses import dataclass

from engine.spec.dpo import DpoStage
from engine.spec.experiment import ExperimentSpec
from engine.spec.sampled import SampledStage
from engine.spec.sft import SftStage

PRACTICE, EVALUATION = "practice", "evaluation"


@dataclass(frozen=True)
class DatasetUse:
    """That a version is named at `path`. stage: its number, None for the run's evaluations.
    reader: the stage's kind where it learns from the rows, or PRACTICE, or EVALUATION."""

    path: str
    stage: int | None
    reader: str
    version: str


def datasets_of(spec: ExperimentSpec) -> list[DatasetUse]:
    """Every version that the spec names; of a valid spec, at most one a stage."""
    found = []
    for index, stage in enumerate(spec.stages):
        path = f"stages.{index}"
        if isinstance(stage, SftStage | DpoStage | SampledStage) and stage.dataset is not None:
            found.append(DatasetUse(f"{path}.dataset", index, stage.kind, stage.dataset))
        practice = stage.practice if isinstance(stage, SftStage | DpoStage) else None
        if practice is not None and practice.dataset is not None:
            found.append(DatasetUse(f"{path}.practice.dataset", index, PRACTICE, practice.dataset))
    if spec.evaluation.dataset is not None:
        found.append(DatasetUse("evaluation.dataset", None, EVALUATION, spec.evaluation.dataset))
    return found
