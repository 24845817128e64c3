"""Starting a run from another run's checkpoint: what is allowed, and what holds a checkpoint."""

import json

from django.db.models import QuerySet
from pydantic import ValidationError

from engine.spec import ExperimentSpec
from engine.spec.fork import fork_disagreements
from engine.spec.lineage import TrainedStage
from webapp.accounts.models import Project
from webapp.experiments.models import Checkpoint, Run, Stage
from webapp.problems import FieldProblem, RefusedError, conflict, invalid_field

UNREADABLE = "The spec of the run that the checkpoint is of is not one that this version reads."


def lock_checkpoint(project: Project, spec: ExperimentSpec, pk: str) -> Checkpoint:
    """The checkpoint that a run shall start from, locked, so that it is not removed meanwhile.

    Raises RefusedError: removed, of another project, of somebody's own trainer, or fields of the
    spec that do not fit it, each with its path.
    """
    rows = Checkpoint.objects.select_for_update(of=("self",)).select_related("run")
    checkpoint = rows.filter(pk=pk).first()
    if checkpoint is None:  # deleted with its run, a moment ago
        raise invalid_field("checkpoint", f"There is no checkpoint {pk} any more.")
    run = checkpoint.run
    if run.project_id != project.pk:
        raise invalid_field("checkpoint", "The checkpoint belongs to another project.")
    if run.is_external:
        raise invalid_field(
            "checkpoint", "This run's trainer is not Caravan's: its checkpoints can be downloaded."
        )
    if checkpoint.removed_at is not None:
        raise RefusedError("The files of this checkpoint were removed.", status=410)
    if problems := fork_problems(spec, run):
        sentences = dict.fromkeys(problem.message for problem in problems)
        raise RefusedError(
            f"This spec cannot start from checkpoint {pk}: {' '.join(sentences)}", problems
        )
    return checkpoint


def fork_problems(spec: ExperimentSpec, parent: Run) -> list[FieldProblem]:
    """Fields that do not fit the weights and tasks of the parent."""
    pairs = fork_disagreements(spec, _parent_spec(parent))
    return [FieldProblem(path, pair.message) for pair in pairs for path in pair.paths]


def check_start(spec: ExperimentSpec) -> None:
    """Refuse a run without a checkpoint that would evaluate weights which nothing has trained."""
    trained = False
    for index, stage in enumerate(spec.stages):
        trained = trained or isinstance(stage, TrainedStage)
        if stage.kind == "evaluate" and not trained:
            raise invalid_field(
                f"stages.{index}.kind",
                "No stage before this one trains, so that there is nothing to evaluate: start the "
                "run from a checkpoint.",
            )


def held() -> QuerySet[Run]:
    """Runs that start from a checkpoint and have not copied it yet.

    They do before their first stage: with a stage reported, the checkpoint is needed no more.
    """
    begun = Stage.objects.values("attempt__run")
    return Run.objects.exclude(checkpoint=None).exclude(pk__in=begun)


def refuse_held(checkpoint: Checkpoint) -> None:
    fork = held().filter(checkpoint=checkpoint).first()
    if fork is not None:
        raise conflict(
            f"Run {fork.name} ({fork.pk}) starts from this checkpoint and has not copied it yet: "
            "wait until its first stage is done, or delete that run."
        )


def _parent_spec(run: Run) -> ExperimentSpec:
    try:
        return ExperimentSpec.model_validate_json(json.dumps(run.spec))
    except ValidationError:
        raise invalid_field("checkpoint", UNREADABLE) from None
