"""The stage that judges: tasks played with frozen weights, several times each if asked for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from engine.spec.base import Disagreement, Hops, SpecModel

if TYPE_CHECKING:
    from engine.spec.experiment import ExperimentSpec

Trials = Field(1, ge=1, le=64, description="How often each task is played; pass@k needs k")
Temperature = Field(
    0.0, ge=0, le=5, description="At which evaluations sample; 0 takes the likeliest token"
)


class EvaluateStage(SpecModel):
    """Play held-out tasks with the weights at this point; nothing is trained."""

    kind: Literal["evaluate"] = "evaluate"
    tasks: Literal["held_out", "quick"] = Field(
        "held_out", description="All held-out tasks, or the others that judge during training"
    )
    hops: list[Hops] | None = Field(
        None, min_length=1, description="Only tasks of these numbers of hops; empty: all"
    )
    number: int | None = Field(
        None, ge=1, description="So many of them, in equal parts per number of hops; empty: all"
    )
    position: int | None = Field(
        None, ge=0, description="Only the task at this place among them, from 0 on; empty: all"
    )
    question: str | None = Field(
        None,
        min_length=1,
        max_length=2000,
        description="Played in place of the tasks, as a person asks it; empty: the tasks",
    )
    answer: str | None = Field(
        None, min_length=1, max_length=200, description="The right answer to question"
    )
    trials: int = Trials
    temperature: float = Temperature


def trial_disagreements(
    trials: int, temperature: float, slots: int, path: str
) -> Iterator[Disagreement]:
    """Why the trials of an evaluation, whose fields stand below `path`, cannot be honoured."""
    if trials > 1 and temperature == 0:
        yield Disagreement(
            f"{trials} trials at temperature 0 would all be the same: take a higher temperature, "
            "or one trial.",
            (f"{path}.trials", f"{path}.temperature"),
        )
    if trials > slots:
        yield Disagreement(
            f"The {trials} trials of a task run at the same time, and a worker keeps at most "
            f"{slots} episodes in flight.",
            (f"{path}.trials", "rollout.slots"),
        )


def disagreements_of(
    stage: EvaluateStage, path: str, spec: "ExperimentSpec"
) -> Iterator[Disagreement]:
    """Fields of a stage of this spec that cannot be honoured."""
    yield from trial_disagreements(stage.trials, stage.temperature, spec.rollout.slots, path)
    yield from _of_one_task(stage, path)
    drawn = spec.evaluation.hops
    if stage.hops and spec.evaluation.dataset:
        yield Disagreement(
            "hops picks among tasks that are drawn from the graph, and these are of a dataset: "
            "leave it empty.",
            (f"{path}.hops", "evaluation.dataset"),
        )
    elif missing := [hops for hops in stage.hops or [] if hops not in drawn]:
        yield Disagreement(
            f"This stage plays tasks of {_or(missing)} hops; only {_or(drawn)} are held out.",
            (f"{path}.hops", "evaluation.hops"),
        )
    field = "tasks" if stage.tasks == "held_out" else "quick_tasks"
    there = getattr(spec.evaluation, field)
    if stage.number is not None and stage.number > there:
        yield Disagreement(
            f"This stage plays {stage.number} tasks, of which only {there} are drawn.",
            (f"{path}.number", f"evaluation.{field}"),
        )
    if stage.position is not None and stage.position >= there:
        yield Disagreement(
            f"There is no task at place {stage.position}: {there} are drawn, and the first is at "
            "place 0.",
            (f"{path}.position", f"evaluation.{field}"),
        )


def _of_one_task(stage: EvaluateStage, path: str) -> Iterator[Disagreement]:
    """Where one task is named, and something else says which."""
    if (stage.question is None) != (stage.answer is None):
        lacks, held = ("answer", "question") if stage.answer is None else ("question", "answer")
        yield Disagreement(
            f"A question is judged by its right answer: give {lacks} beside {held}.",
            (f"{path}.{lacks}", f"{path}.{held}"),
        )
    named = "question" if stage.question is not None else "position"
    if getattr(stage, named) is None:
        return
    for other in ("hops", "number", *(["position"] if named == "question" else [])):
        if getattr(stage, other) is not None:
            yield Disagreement(
                f"This stage plays one task, that of {named}, and does not read {other}: leave it "
                "empty.",
                (f"{path}.{other}", f"{path}.{named}"),
            )


def _or(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))
