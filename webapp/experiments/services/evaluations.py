"""Evaluating a checkpoint on demand: a run that starts from it and does nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webapp.accounts.models import User
from webapp.experiments.models import Checkpoint, Run
from webapp.experiments.services.launch import Launch, check_spec, launch_run, numbered

TAG = "evaluation"
ALL = 10**6  # tasks of a dataset


@dataclass(frozen=True)
class Wanted:
    """What to play; as the fields of a stage of kind evaluate. `dataset`: the id of a version whose
    tasks are played, all of them, in place of the run's own held-out ones."""

    tasks: str = "held_out"
    hops: list[int] | None = None
    number: int | None = None
    trials: int = 1
    temperature: float = 0.0
    position: int | None = None
    question: str | None = None
    answer: str | None = None
    dataset: str | None = None


def evaluate_checkpoint(
    checkpoint: Checkpoint,
    user: User,
    wanted: Wanted,
    name: str = "",
    tags: Sequence[str] = (TAG,),
) -> Run:
    """Launch a run of two stages, the parent's first and one that judges.

    Raises RefusedError with the field that cannot be honoured.
    """
    parent = checkpoint.run
    experiment = parent.experiment
    stage = {"kind": "evaluate", **vars(wanted)}
    given = {**parent.spec, "stages": [*parent.spec.get("stages", [])[:1], stage]}
    if (dataset := stage.pop("dataset")) is not None:
        how = {"dataset": dataset, "tasks": ALL}
        given["evaluation"] = {**parent.spec.get("evaluation", {}), **how}
        given["evaluation"].pop("hops", None)  # of tasks that are drawn
    spec = check_spec(given)
    launch = Launch(
        experiment=experiment.name,
        name=name or numbered(experiment, f"{parent.name[:100]}-evaluation"),
        tags=list(tags),
        checkpoint=checkpoint,
    )
    return launch_run(parent.project, user, spec, launch)


def is_evaluation(spec: dict[str, Any]) -> bool:
    """Whether a run of this spec judges a checkpoint and does nothing else."""
    kinds = [stage.get("kind") for stage in spec.get("stages", [])]
    return kinds[1:] == ["evaluate"]
