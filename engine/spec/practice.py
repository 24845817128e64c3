"""Practice: tasks that a stage plays with its own policy before it learns from them."""

from collections.abc import Iterator, Mapping

from pydantic import Field

from engine.spec.base import DatasetVersionId, Disagreement, Hops, SpecModel


class PracticeSpec(SpecModel):
    """Practice tasks that the rollout workers play with the weights at the start of a stage."""

    dataset: DatasetVersionId | None = Field(
        None,
        description="Id of the version of tasks that are played; empty: those that the first stage "
        "draws",
    )
    hops: list[Hops] = Field(
        default=[3, 4], min_length=1, description="Numbers of hops of the tasks that were drawn"
    )
    tasks: int = Field(500, ge=1, description="Tasks; where there are fewer, all of them")
    attempts: int = Field(1, ge=1, description="Times that each task is played")
    temperature: float = Field(1.0, gt=0, le=5, description="Of sampling, and of what is learned")


def practice_disagreements(
    practice: PracticeSpec, drawn: Mapping[str, int], slots: int, path: str
) -> Iterator[Disagreement]:
    """Where the tasks cannot be played as asked. drawn: training tasks by number of hops."""
    missing = sorted(str(hops) for hops in practice.hops if not drawn.get(str(hops)))
    if practice.dataset is not None:
        if practice.hops != PracticeSpec.model_fields["hops"].default:
            yield Disagreement(
                "Practice on the tasks of a dataset plays them whatever their hops and does not "
                "read hops: leave it out, or leave dataset empty.",
                (f"{path}.hops", f"{path}.dataset"),
            )
    elif missing:
        yield Disagreement(
            f"This stage practises tasks of {' or '.join(missing)} hops; the first stage draws "
            "none.",
            (f"{path}.hops", "stages.0.tasks"),
        )
    if practice.attempts > slots:
        yield Disagreement(
            f"A task is played {practice.attempts} times at once, a worker keeps at most {slots} "
            "episodes in flight.",
            (f"{path}.attempts", "rollout.slots"),
        )
