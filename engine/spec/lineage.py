"""Which stage's final weights a stage begins with, and which of them later stages need."""

from collections.abc import Iterator, Sequence

from pydantic import Field

from engine.spec.base import Disagreement, SpecModel
from engine.spec.optimizer import OptimizerSpec


class LoraSpec(SpecModel):
    """Adapters of low rank on every matrix of the layers; the weights they start from stay."""

    rank: int = Field(16, ge=1, le=1024, description="Columns and rows of an adapter's factors")
    alpha: float = Field(
        32.0, gt=0, description="The product of the factors is scaled by alpha / rank"
    )


class TrainedStage(SpecModel):
    """A stage that changes the weights."""

    kind: str
    start_from: int | None = Field(
        None,
        ge=0,
        description="Number of the earlier training stage, from 0 on, with whose final weights "
        "this one begins; empty: the training stage before it",
    )
    lora: LoraSpec | None = Field(
        None, description="Train adapters of low rank instead of the weights; empty: the weights"
    )
    steps: int
    optimizer: OptimizerSpec

    def teachers_from(self) -> list[int]:
        """Numbers of the stages whose final weights teach this one."""
        return []


def parent_of(stages: Sequence[SpecModel], index: int) -> int | None:
    """The stage whose final weights stage `index` begins with; None: weights as they were made."""
    stage = stages[index]
    if isinstance(stage, TrainedStage) and stage.start_from is not None:
        return stage.start_from
    earlier = (at for at in reversed(range(index)) if isinstance(stages[at], TrainedStage))
    return next(earlier, None)


def ancestors(stages: Sequence[SpecModel], index: int) -> list[int]:
    """The stages before `index` in its line, the nearest first."""
    found: list[int] = []
    at = parent_of(stages, index)
    while at is not None:
        found.append(at)
        at = parent_of(stages, at)
    return found


def needed_by(stages: Sequence[SpecModel], index: int) -> list[int]:
    """The later stages that need the final weights of stage `index`, to begin with or to learn
    from."""
    return [
        at
        for at, stage in enumerate(stages)
        if isinstance(stage, TrainedStage)
        and (parent_of(stages, at) == index or index in stage.teachers_from())
    ]


def disagreements_of(stages: Sequence[SpecModel]) -> Iterator[Disagreement]:
    """Where stages begin, and what of them is trained."""
    for index, stage in enumerate(stages):
        if isinstance(stage, TrainedStage) and stage.start_from is not None:
            path = f"stages.{index}.start_from"
            yield from wrong_source(stages, index, stage.start_from, path, "begin with")
        if isinstance(stage, TrainedStage) and stage.lora and stage.optimizer.kind == "muon":
            yield Disagreement(
                "muon makes all directions of a matrix equally large, which changes what an "
                "adapter's thin factors mean: adapters are trained with adamw.",
                (f"stages.{index}.lora", f"stages.{index}.optimizer.kind"),
            )
        if isinstance(stage, TrainedStage) and stage.lora and stage.optimizer.qk_clip is not None:
            yield Disagreement(
                "qk_clip scales rows of projections, and adapters add to frozen ones: leave it "
                "empty.",
                (f"stages.{index}.lora", f"stages.{index}.optimizer.qk_clip"),
            )


def wrong_source(
    stages: Sequence[SpecModel], index: int, source: int, path: str, verb: str
) -> Iterator[Disagreement]:
    """Why stage `index` cannot take the final weights of stage `source`, named at `path`."""
    trained = [at for at in range(index) if isinstance(stages[at], TrainedStage)]
    if source in trained:
        return
    if source == index:
        said = f"Stage {index} cannot {verb} its own final weights"
    elif source >= len(stages):
        said = f"There is no stage {source}; the last one is {len(stages) - 1}"
    elif source > index:
        said = f"Stage {source} comes after stage {index}, which would {verb} its final weights"
    else:
        kind = getattr(stages[source], "kind", "")
        said = f"Stage {source} is {kind}, which trains no weights"
    choice = f"stage {' or '.join(map(str, trained))}" if trained else "nothing: leave it empty"
    yield Disagreement(f"{said}; there is {choice}.", (path,))
