"""What people write about runs: names, notes, tags, and whether they are archived."""

import re

from django.db import transaction
from django.utils import timezone

from webapp import live
from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.experiments.models import Run
from webapp.experiments.states import lock
from webapp.problems import conflict, invalid_field

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
        run.name = checked_name(name)
    if notes is not None:
        run.notes = checked_notes(notes)
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


def checked_name(name: str) -> str:
    """Without blanks around it. Raises RefusedError."""
    name = name.strip()
    if not 1 <= len(name) <= 120:
        raise invalid_field("name", f"A name has 1 to 120 characters, not {len(name)}.")
    return name


def checked_notes(notes: str) -> str:
    if len(notes) > MAX_NOTES:
        raise invalid_field("notes", f"Notes have at most {MAX_NOTES:,} characters.")
    return notes
