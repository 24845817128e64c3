"""Experiments: names, notes, the pinned baseline; archived when answered, deleted when empty."""

from django.db import IntegrityError, transaction
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import Experiment, Run
from webapp.experiments.services.edit import checked_name, checked_notes
from webapp.problems import conflict, invalid_field

MOST_NAMED = 3


@transaction.atomic
def create_experiment(project: Project, user: User, name: str, notes: str = "") -> Experiment:
    try:
        with transaction.atomic():
            experiment = Experiment.objects.create(
                project=project,
                name=checked_name(name),
                notes=checked_notes(notes),
                created_by=user,
            )
    except IntegrityError:
        raise invalid_field("name", f"There is an experiment {name!r} already.") from None
    record("experiment.create", experiment.pk, user=user, project=project, name=name)
    return experiment


@transaction.atomic
def edit_experiment(
    experiment_id: str,
    user: User,
    *,
    name: str | None = None,
    notes: str | None = None,
    baseline: Run | None | str = "",
) -> Experiment:
    """Change name, notes or pinned baseline (None: no baseline; empty text: as it is)."""
    experiment = lock_experiment(experiment_id)
    if name is not None:
        experiment.name = checked_name(name)
    if notes is not None:
        experiment.notes = checked_notes(notes)
    if not isinstance(baseline, str):
        if baseline is not None and baseline.experiment_id != experiment.pk:
            raise invalid_field("baseline", "The baseline must be a run of this experiment.")
        experiment.baseline = baseline
    try:
        with transaction.atomic():
            experiment.save(update_fields=["name", "notes", "baseline"])
    except IntegrityError:
        raise invalid_field("name", f"There is an experiment {name!r} already.") from None
    record("experiment.edit", experiment.pk, user=user, project=experiment.project)
    return experiment


@transaction.atomic
def archive_experiment(experiment_id: str, user: User, archived: bool = True) -> Experiment:
    """Take it out of the lists, or put it back; its runs stay where they are.

    A run that is launched under its name puts it back, too.
    """
    experiment = lock_experiment(experiment_id)
    active = experiment.runs.filter(ended_at=None).order_by("-created_at")
    if archived and (names := list(active.values_list("name", flat=True)[:MOST_NAMED])):
        raise conflict(f"Runs of it are active ({', '.join(names)}): stop them first.")
    experiment.archived_at = timezone.now() if archived else None
    experiment.save(update_fields=["archived_at"])
    record(
        "experiment.archive",
        experiment.pk,
        user=user,
        project=experiment.project,
        archived=archived,
    )
    return experiment


@transaction.atomic
def delete_experiment(experiment_id: str, user: User) -> None:
    """Remove an experiment that has no run. Raises RefusedError (409), naming runs that it has."""
    experiment = lock_experiment(experiment_id)
    runs = experiment.runs.order_by("-created_at")
    if names := list(runs.values_list("name", flat=True)[:MOST_NAMED]):
        more = runs.count() - len(names)
        also = f" and {more} more" if more else ""
        raise conflict(
            f"It has runs: {', '.join(names)}{also}. Delete them first, or archive the experiment."
        )
    record(
        "experiment.delete",
        experiment.pk,
        user=user,
        project=experiment.project,
        name=experiment.name,
    )
    experiment.delete()


def lock_experiment(experiment_id: str) -> Experiment:
    rows = Experiment.objects.select_for_update(no_key=True, of=("self",))
    return rows.select_related("project").get(pk=experiment_id)
