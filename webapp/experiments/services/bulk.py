"""One change to many runs: those that are named, or all that a filter finds."""

from dataclasses import dataclass, field

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from webapp import live
from webapp.accounts.audit import record
from webapp.accounts.models import Project, User
from webapp.experiments.models import HEAVY_FIELDS, Run
from webapp.experiments.services.control import stop
from webapp.experiments.services.edit import clean_tags
from webapp.problems import RefusedError, invalid_field

ACTIONS = ("tag", "untag", "stop", "archive", "unarchive")
MOST_NAMED = 200  # runs that the audit log lists by id


@dataclass
class Changed:
    """How many runs were changed, and the runs that could not be, each with the reason."""

    done: int = 0
    refused: list[tuple[Run, str]] = field(default_factory=list)


def change_runs(
    project: Project, user: User, runs: QuerySet[Run], action: str, tag: str = ""
) -> Changed:
    """Tag, untag, stop, archive or bring back. Raises RefusedError: an action or tag that is none.

    Stopping takes a transaction a run, so that what was asked of some holds if a later one fails;
    runs that have ended already count as neither. The other actions are one transaction.
    """
    if action not in ACTIONS:
        raise invalid_field("action", f"{action!r} is no action: use {', '.join(ACTIONS)}.")
    runs = runs.filter(project=project)
    if action == "stop":
        return _stop(user, runs)
    if action in ("tag", "untag"):
        tags = clean_tags([tag])
        if not tags:
            raise invalid_field("tag", "Write the tag that is added or removed.")
    with transaction.atomic():
        # As moves in the queue do, which lock runs in another order.
        Project.objects.select_for_update(no_key=True).get(pk=project.pk)
        ids = list(runs.order_by("pk").values_list("pk", flat=True))
        rows = Run.objects.defer(*HEAVY_FIELDS).select_for_update(no_key=True)
        locked = rows.filter(pk__in=ids).order_by("pk")
        found = (
            _archive(list(locked), action)
            if "archive" in action
            else _tag(list(locked), action, tags[0])
        )
        detail = {"tag": tag} if "tag" in action else {}
        record(
            f"runs.{action}", project.pk, user=user, project=project,
            runs=found.done, ids=ids[:MOST_NAMED], **detail,
        )  # fmt: skip
        if ids:
            live.announce(Run.objects.select_related("project").get(pk=ids[0]))
    return found


def _stop(user: User, runs: QuerySet[Run]) -> Changed:
    found = Changed()
    for run in runs.filter(ended_at=None).defer(*HEAVY_FIELDS).order_by("pk"):
        try:
            stop(run.pk, user)
            found.done += 1
        except RefusedError as refused:
            found.refused.append((run, refused.detail))
    return found


def _archive(runs: list[Run], action: str) -> Changed:
    found = Changed()
    changed = []
    for run in runs:
        if action == "archive" and run.ended_at is None:
            found.refused.append((run, f"This run is {run.state}: stop it before you archive it."))
            continue
        run.archived_at = timezone.now() if action == "archive" else None
        changed.append(run)
    Run.objects.bulk_update(changed, ["archived_at"], batch_size=500)
    found.done = len(changed)
    return found


def _tag(runs: list[Run], action: str, tag: str) -> Changed:
    found = Changed()
    changed = []
    for run in runs:
        kept = [one for one in run.tags if one != tag]
        try:
            run.tags = clean_tags([*kept, tag]) if action == "tag" else kept
        except RefusedError as refused:
            found.refused.append((run, refused.detail))
            continue
        changed.append(run)
    Run.objects.bulk_update(changed, ["tags"], batch_size=500)
    found.done = len(changed)
    return found
