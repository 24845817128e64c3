"""The stage of preference learning: own mistakes and their repair, or pairs of a dataset."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import Field

from engine.spec.base import DatasetVersionId, Disagreement
from engine.spec.lineage import TrainedStage
from engine.spec.optimizer import OptimizerSpec
from engine.spec.practice import PracticeSpec, practice_disagreements
from engine.spec.synthesise import SynthesiseStage

PairLoss = Literal["sigmoid", "ipo", "sigmoid_norm", "sft"]
OwnTokens = Literal["all", "first"]
BETA = 0.1


class DpoStage(TrainedStage):
    """Preference learning: own tool-call errors and their nearest repair, or stored pairs."""

    kind: Literal["dpo"] = "dpo"
    dataset: DatasetVersionId | None = Field(
        None,
        description="Id of a version of pairs to learn from; empty: own errors in practice",
    )
    practice: PracticeSpec = Field(
        PracticeSpec(), description="What is played at the start of the stage to find errors"
    )
    pairs_per_class: int = Field(
        500, ge=1, description="Pairs of one class of errors, at most: frequent ones would drown"
    )
    judged_tasks: int = Field(
        200, ge=1, description="Held-out tasks on which errors are counted before and after"
    )
    loss: PairLoss = Field(
        "sigmoid",
        description="sigmoid is DPO; ipo and sigmoid_norm take means over tokens; sft learns the "
        "repairs as demonstrations, to compare",
    )
    own_tokens: OwnTokens = Field(
        "all",
        description="Tokens of each side that are in the loss: all from where the sides part, or "
        "the first alone, which is the choice that made the error",
    )
    beta: float | None = Field(
        None, gt=0, le=10, description=f"Distance from the start is paid by it; empty: {BETA}"
    )
    rpo_weight: float = Field(
        0.0, ge=0, description="Weight of the likelihood of the repairs, which holds it up"
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=0.5, description="Share of pairs thought to be the wrong way round"
    )
    batch_size: int = Field(32, ge=1, description="Pairs of a step")
    steps: int = Field(50, ge=1)
    optimizer: OptimizerSpec = OptimizerSpec(
        lr=1e-4, betas=(0.9, 0.98), clip_norm=1.0, weight_decay=0.0, warmup_steps=5
    )

    @property
    def strength(self) -> float:
        """beta, with its default."""
        return BETA if self.beta is None else self.beta


def with_our_loss(stage: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stage of this kind with TRL's loss_type replaced by ours.

    A list of a loss and sft is that loss with an rpo_weight of 1, as TRL weighs them. Raises
    ValueError for what has no counterpart here, and where loss or rpo_weight says another thing.
    """
    if stage.get("kind") != "dpo" or "loss_type" not in stage:
        return dict(stage)
    given, found = stage["loss_type"], {k: v for k, v in stage.items() if k != "loss_type"}
    names = given if isinstance(given, list) else [given]
    meant: dict[str, Any] = {"loss": names[0] if names else None}
    if len(names) > 1:
        meant["rpo_weight"] = 1.0
    if meant["loss"] not in get_args(PairLoss) or names[1:] not in ([], ["sft"]):
        known = ", ".join(get_args(PairLoss))
        raise ValueError(
            f"loss_type {given!r} has no counterpart here: there are {known}, and a list of one "
            "of them and sft."
        )
    for name, value in meant.items():
        if found.setdefault(name, value) != value:
            raise ValueError(
                f"loss_type {given!r} means {name} {value!r}, and {name} says {found[name]!r}: "
                "keep one of them."
            )
    return found


def disagreements_of(
    stage: DpoStage, first: SynthesiseStage, slots: int, path: str
) -> Iterator[Disagreement]:
    """Fields of the stage that cannot be honoured together, or with the first stage."""
    if stage.dataset is None:
        yield from practice_disagreements(stage.practice, first.tasks, slots, f"{path}.practice")
    else:
        for name in ("dataset", "hops", "tasks", "attempts"):
            if getattr(stage.practice, name) != getattr(PracticeSpec(), name):
                yield Disagreement(
                    "A stage that learns from a dataset plays no practice tasks and does not read "
                    f"practice.{name}: leave it out, or leave dataset empty.",
                    (f"{path}.practice.{name}", f"{path}.dataset"),
                )
    if stage.loss == "sft":
        for name in ("beta", "rpo_weight"):
            if getattr(stage, name):
                yield Disagreement(
                    f"The loss sft compares nothing and does not read {name}: leave it out.",
                    (f"{path}.{name}", f"{path}.loss"),
                )
    if stage.label_smoothing and stage.loss != "sigmoid":
        yield Disagreement(
            f"The loss {stage.loss} does not read label_smoothing: it is of sigmoid.",
            (f"{path}.label_smoothing", f"{path}.loss"),
        )
