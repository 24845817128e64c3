"""The stage of supervised learning: from demonstrations, own accepted rollouts or a dataset."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from engine.spec.base import DatasetVersionId, Disagreement
from engine.spec.lineage import TrainedStage
from engine.spec.optimizer import OptimizerSpec
from engine.spec.practice import PracticeSpec, practice_disagreements
from engine.spec.synthesise import SynthesiseStage

PER_PROMPT = 4


class SftStage(TrainedStage):
    """Supervised learning: the cold start on demonstrations, rejection sampling, or a dataset."""

    kind: Literal["sft"] = "sft"
    source: Literal["demonstrations", "accepted", "dataset"] = Field(
        "demonstrations",
        description="accepted: own rollouts at the start of the stage that the verifier accepts; "
        "dataset: trajectories of a stored version",
    )
    dataset: DatasetVersionId | None = Field(
        None, description="Id of the version of trajectories for the source dataset"
    )
    practice: PracticeSpec | None = Field(
        None, description="What is played for the source accepted; empty: its defaults"
    )
    per_prompt: int | None = Field(
        None,
        ge=1,
        description="Accepted rollouts kept of a task, at most, or easy ones would drown the "
        f"others; empty: {PER_PROMPT}",
    )
    steps: int = Field(300, ge=1)
    batch_size: int = Field(64, ge=1)
    optimizer: OptimizerSpec = OptimizerSpec(
        kind="muon", lr=2e-3, warmup_steps=50, decay_share=0.4, clip_norm=1.0
    )

    @property
    def played(self) -> PracticeSpec | None:
        """What the stage plays before it learns; None where it learns from what is there."""
        return (self.practice or PracticeSpec()) if self.source == "accepted" else None

    @property
    def kept_per_prompt(self) -> int:
        return PER_PROMPT if self.per_prompt is None else self.per_prompt


def disagreements_of(
    stage: SftStage, first: SynthesiseStage, slots: int, path: str
) -> Iterator[Disagreement]:
    """Fields of the stage that cannot be honoured together, or with the first stage."""
    if (stage.source == "dataset") != (stage.dataset is not None):
        said = "needs the id of a version in" if stage.dataset is None else "does not read"
        yield Disagreement(
            f"The source {stage.source} {said} dataset: give both the source dataset and the id, "
            "or neither.",
            (f"{path}.dataset", f"{path}.source"),
        )
    if stage.played is not None:
        place = f"{path}.practice"
        yield from practice_disagreements(stage.played, first.tasks, slots, place)
        return
    if stage.source == "demonstrations" and not any(first.demonstrations.values()):
        yield Disagreement(
            "This stage learns from demonstrations, and none are asked for.",
            (f"{path}.kind", "stages.0.demonstrations"),
        )
    for name in ("practice", "per_prompt"):
        if getattr(stage, name) is not None:
            yield Disagreement(
                f"The source {stage.source} does not read {name}: leave it out, or take the source "
                "accepted.",
                (f"{path}.{name}", f"{path}.source"),
            )
