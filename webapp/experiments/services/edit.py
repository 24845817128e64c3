"""What people write about experiments and runs: names, notes, tags, baseline, archive, presets."""

import re

from django.db import IntegrityError, transaction
from django.utils import timezone

from engine.spec import load_spec
from webapp import live
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import Experiment, Preset, Run
from webapp.experiments.states import lock
from webapp.problems import FieldProblem, RefusedError, conflict, invalid_field

MAX_NOTES = 100_000
MAX_TAGS = 20
TAG = re.compile(r"[\w][\w./+-]{0,39}")


def clean_tags(tags: list[str]) -> list[str]:
    """Each tag once, in the given order. Raises RefusedError for one that cannot be filtered by."""
    found = list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    for tag in found:
        if not TAG.fullmatch(tag):
            raise invalid_field(
                "tags", f"{tag!r} is no tag: use up to 40 letters, digits and . / + - _"
            )
    if len(found) > MAX_TAGS:
        raise invalid_field("tags", f"A run has at most {MAX_TAGS} tags, not {len(found)}.")
    return found


@transaction.atomic
def set_tags(run_id: str, user: User, add: list[str], remove: list[str]) -> Run:
    run = lock(run_id)
    kept = [tag for tag in run.tags if tag not in set(remove)]
    run.tags = clean_tags([*kept, *add])
    run.save(update_fields=["tags"])
    record("run.tags", run.pk, user=user, project=run.project, tags=run.tags)
    live.announce(run)
    return run


@transaction.atomic
def edit_run(run_id: str, user: User, *, name: str | None = None, notes: str | None = None) -> Run:
    """Change a run's name or notes; what it was launched with never changes."""
    run = lock(run_id)
    if name is not None:
        run.name = _name(name)
    if notes is not None:
        run.notes = _notes(notes)
    run.save(update_fields=["name", "notes"])
    record("run.edit", run.pk, user=user, project=run.project, name=run.name)
    live.announce(run)
    return run


@transaction.atomic
def archive(run_id: str, user: User, archived: bool = True) -> Run:
    """Take an ended run out of the lists, or put it back."""
    run = lock(run_id)
    if archived and run.ended_at is None:
        raise conflict(f"This run is {run.state}: stop it before you archive it.")
    run.archived_at = timezone.now() if archived else None
    run.save(update_fields=["archived_at"])
    record("run.archive", run.pk, user=user, project=run.project, archived=archived)
    live.announce(run)
    return run


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
    experiment = Experiment.objects.select_for_update(no_key=True).get(pk=experiment_id)
    if name is not None:
        experiment.name = _name(name)
    if notes is not None:
        experiment.notes = _notes(notes)
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
def create_experiment(project: Project, user: User, name: str, notes: str = "") -> Experiment:
    try:
        with transaction.atomic():
            experiment = Experiment.objects.create(
                project=project, name=_name(name), notes=_notes(notes), created_by=user
            )
    except IntegrityError:
        raise invalid_field("name", f"There is an experiment {name!r} already.") from None
    record("experiment.create", experiment.pk, user=user, project=project, name=name)
    return experiment


@transaction.atomic
def save_preset(project: Project, user: User, name: str, text: str) -> Preset:
    """Save a recipe under a name of the project; a preset of that name is replaced."""
    _, problems = load_spec(text)
    if problems:
        raise RefusedError(
            "This recipe cannot be launched, so it is not saved.",
            [FieldProblem(problem.path, problem.message) for problem in problems],
        )
    preset = Preset.objects.filter(project=project, name__iexact=name.strip()).first()
    preset = preset or Preset(project=project, name=_name(name))
    preset.text, preset.created_by = text, user
    preset.save()
    record("preset.save", preset.pk, user=user, project=project, name=preset.name)
    return preset


def _name(name: str) -> str:
    name = name.strip()
    if not 1 <= len(name) <= 120:
        raise invalid_field("name", f"A name has 1 to 120 characters, not {len(name)}.")
    return name


def _notes(notes: str) -> str:
    if len(notes) > MAX_NOTES:
        raise invalid_field("notes", f"Notes have at most {MAX_NOTES:,} characters.")
    return notes
