"""Presets: recipes that a project saved, each under a name of its own."""

from django.db import IntegrityError, transaction

from engine.spec import load_spec
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import Preset
from webapp.experiments.services.edit import checked_name
from webapp.experiments.spec_text import check_length
from webapp.problems import FieldProblem, RefusedError, conflict


@transaction.atomic
def save_preset(
    project: Project, user: User, name: str, text: str, replace: bool = False
) -> Preset:
    """Save a recipe under a name of the project.

    Raises RefusedError: a text that cannot be launched, with its fields; a name that is taken (409)
    unless the preset of that name shall be replaced.
    """
    name = checked_name(name)
    check_length(text)
    _, problems = load_spec(text)
    if problems:
        raise RefusedError(
            "This recipe cannot be launched, so it is not saved.",
            [FieldProblem(problem.path, problem.message) for problem in problems],
        )
    rows = Preset.objects.select_for_update(of=("self",)).select_related("updated_by")
    preset = rows.filter(project=project, name__iexact=name).first()
    if preset is not None and not replace:
        raise _taken(preset)
    preset = preset or Preset(project=project, name=name, created_by=user)
    preset.text, preset.updated_by = text, user
    try:
        with transaction.atomic():
            preset.save()
    except IntegrityError:  # somebody else saved it at the same moment
        raise conflict(f"There is a preset {name!r} since a moment ago: save again.") from None
    record("preset.save", preset.pk, user=user, project=project, name=preset.name)
    return preset


@transaction.atomic
def delete_preset(preset: Preset, user: User) -> None:
    """Runs that were launched with it keep their specs."""
    record("preset.delete", preset.pk, user=user, project=preset.project, name=preset.name)
    preset.delete()


def _taken(preset: Preset) -> RefusedError:
    by = f" by {preset.updated_by}" if preset.updated_by else ""
    return conflict(
        f"There is a preset {preset.name!r}, saved{by} on {preset.updated_at:%Y-%m-%d at %H:%M} "
        "UTC: replace it, or take another name."
    )
