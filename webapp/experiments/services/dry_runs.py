"""Dry runs: a spec on tiny amounts, of which nothing is kept but what it reported."""

from django.db import transaction
from django.utils import timezone

from engine.spec import ExperimentSpec
from engine.spec.dry_run import on_tiny_amounts
from webapp import storage
from webapp.experiments.models import Checkpoint, Run
from webapp.problems import FieldProblem, RefusedError


def tried_spec(spec: ExperimentSpec, *, fork: bool = False) -> ExperimentSpec:
    """What a dry run of the spec runs; fork: from a checkpoint. Raises RefusedError where there is
    none."""
    found, problems = on_tiny_amounts(spec, fork=fork)
    if found is None:
        said = " ".join(dict.fromkeys(problem.message for problem in problems))
        raise RefusedError(
            f"This spec cannot be tried on tiny amounts: {said}",
            [FieldProblem(problem.path, problem.message) for problem in problems],
        )
    return found


def clear_dry_runs() -> int:
    """Remove the checkpoints of dry runs that have ended; how many were removed."""
    held = Checkpoint.objects.filter(
        removed_at=None, run__full_spec__isnull=False, run__ended_at__isnull=False
    )
    return sum(_clear(run_id) for run_id in held.values_list("run", flat=True).distinct())


@transaction.atomic
def _clear(run_id: str) -> int:
    run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
    rows = list(run.checkpoints.filter(removed_at=None))
    run.checkpoints.filter(removed_at=None).update(removed_at=timezone.now())

    def remove_files() -> None:
        for row in rows:
            storage.remove_run(run_id, row.path)

    transaction.on_commit(remove_files)
    return len(rows)
