"""One run: its header with the controls, Overview, Config and Checkpoints."""

import json
import time
from typing import Any, TypeVar

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import dry_runs, edits, services
from webapp.experiments.frozen_spec import spec_text
from webapp.experiments.lineage import lineage_of, with_parents
from webapp.experiments.lists import list_dataset_versions
from webapp.experiments.models import ACTIVE_STATES, Checkpoint, Run, Stage
from webapp.experiments.pages.results import results
from webapp.experiments.queries import run_detail
from webapp.experiments.states import RESUMABLE, lock
from webapp.monitoring.overview import chart_data
from webapp.pages import page_of, show, tell
from webapp.problems import RefusedError, invalid_field

RUNS = Run.objects.select_related(
    "project", "experiment", "created_by", "parent", "checkpoint", "trial_run__trial__sweep"
)
MOST_TEXT = 60_000  # characters of JSON that are shown as one text
N = TypeVar("N", int, float)


@page_of(RUNS)
def overview(request: HttpRequest, run: Run) -> HttpResponse:
    context = run_context(run, "overview") | chart_data(run) | {"results": results(run.summary)}
    return show(request, "experiments/run_overview.html", context)


@page_of(RUNS)
def header(request: HttpRequest, run: Run) -> HttpResponse:
    """The part of every tab that follows the run's state; fetched again when that changes."""
    return show(
        request,
        "experiments/run_header_page.html",
        run_context(run, ""),
        "experiments/run_header.html",
    )


@page_of(RUNS.select_related("reward_scheme__scheme"))
def config(request: HttpRequest, run: Run) -> HttpResponse:
    """A spec that is longer than anybody reads is a tree in the browser, closed at first."""
    length = len(json.dumps(run.spec))
    context = run_context(run, "config") | {
        "text": spec_text(run) if length <= MOST_TEXT else None,
        "length": length,
    }
    return show(request, "experiments/run_config.html", context)


@page_of(RUNS)
def checkpoints(request: HttpRequest, run: Run) -> HttpResponse:
    rows = with_parents(run.checkpoints.select_related("attempt")).order_by("-created_at")
    found = [(row, sum(file["size"] for file in row.files.values())) for row in rows]
    versions = list_dataset_versions(access.actor_of(request), run.project_id, kind="tasks")
    context = run_context(run, "checkpoints") | {
        "kept": [(row, size) for row, size in found if row.removed_at is None],
        "removed": [(row, size) for row, size in found if row.removed_at is not None],
        "lineage": lineage_of(run),
        "forkable": not run.is_external,
        "task_versions": versions.items,
        "more_task_versions": versions.next_cursor is not None,
    }
    return show(request, "experiments/run_checkpoints.html", context)


@require_POST
@page_of(RUNS, Role.EDITOR)
def evaluate(request: HttpRequest, run: Run) -> HttpResponse:
    """Judge a checkpoint of this run in a run of its own, and go there."""
    actor = access.actor_of(request)
    checkpoint = access.get(
        Checkpoint.objects.filter(run=run), request.POST.get("checkpoint", ""), actor, Role.EDITOR
    )
    try:
        given: dict[str, Any] = {
            **_played(request.POST.get("tasks", "")),
            "number": number_of(request, "number", int),
            "trials": number_of(request, "trials", int),
            "temperature": number_of(request, "temperature", float),
        }
        wanted = services.Wanted(**{k: v for k, v in given.items() if v is not None})
        new = services.evaluate_checkpoint(checkpoint, actor.user, wanted)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("run_checkpoints", run.pk)
    return redirect("run", new.pk)


def _played(given: str) -> dict[str, str]:
    """What the form's choice of tasks says: held_out, quick, or the id of a dataset's version."""
    return {"dataset": given} if given.startswith("ver_") else {"tasks": given} if given else {}


def number_of(request: HttpRequest, name: str, kind: type[N]) -> N | None:
    """A field of the form; None where it was left empty. Raises RefusedError."""
    given = request.POST.get(name, "").strip()
    try:
        return kind(given) if given else None
    except ValueError:
        raise invalid_field(
            name,
            _("%(name)s: %(given)s is no number.")
            % {
                "name": name,
                "given": given[:40],
            },
        ) from None


@require_POST
@page_of(RUNS, Role.EDITOR)
def control(request: HttpRequest, run: Run) -> HttpResponse:
    """Stop, resume, and the two latches."""
    user = access.actor_of(request).user
    action = request.POST.get("action")
    try:
        if action == "stop":
            services.stop(run.pk, user)
        elif action == "resume":
            services.resume(run.pk, user)
        elif action in ("pause-rollouts", "continue-rollouts"):
            services.pause(run.pk, user, rollouts=action == "pause-rollouts")
        elif action in ("pause-training", "continue-training"):
            services.pause(run.pk, user, training=action == "pause-training")
        else:
            raise Http404
    except RefusedError as refused:
        tell(request, refused)
    if request.htmx:  # type: ignore[attr-defined]
        run.refresh_from_db()
        return render(request, "experiments/run_header.html", run_context(run, ""))
    return redirect("run", run.pk)


@require_POST
@page_of(RUNS, Role.EDITOR)
def edit(request: HttpRequest, run: Run) -> HttpResponse:
    """Name, tags and notes. With `seen`, the tag of what its writer saw, a change that was made
    meanwhile is shown instead of being written over."""
    given = {name: request.POST.get(name) for name in ("name", "tags", "notes")}
    user = access.actor_of(request).user
    try:
        with transaction.atomic():
            now = lock(run.pk)
            if request.POST.get("seen") not in (None, edits.seen_run(now)):
                return _changed_meanwhile(request, now, given)
            notes = given["notes"]
            services.edit_run(
                run.pk,
                user,
                name=given["name"],
                notes=None if notes is None else notes.replace("\r\n", "\n"),
            )
            if given["tags"] is not None:
                tags = given["tags"].replace(",", " ").split()
                services.set_tags(run.pk, user, add=tags, remove=now.tags)
        messages.success(request, _("Saved."))
    except RefusedError as refused:
        tell(request, refused)
    return redirect("run", run.pk)


def _changed_meanwhile(
    request: HttpRequest, now: Run, given: dict[str, str | None]
) -> HttpResponse:
    held = {"name": now.name, "tags": " ".join(now.tags), "notes": now.notes}
    yours = {name: held[name] if text is None else text for name, text in given.items()}
    labels = {"name": _("Name"), "tags": _("Tags"), "notes": _("Notes")}
    fields = [
        edits.Field(
            name, labels[name], theirs, yours[name].replace("\r\n", "\n"), is_long=name == "notes"
        )
        for name, theirs in held.items()
    ]
    back = reverse("run", args=[now.pk])
    context = edits.conflict_context(now, "run.edit", edits.seen_run(now), fields, back)
    context["section"] = "runs"
    return show(request, "experiments/edit_conflict.html", context, status=409)


@require_POST
@page_of(RUNS, Role.ADMIN)
def delete(request: HttpRequest, run: Run) -> HttpResponse:
    """For good; the button asks first."""
    try:
        services.delete_run(run.pk, access.actor_of(request).user)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("run", run.pk)
    messages.success(request, _("%(name)s is deleted.") % {"name": run.name})
    return redirect("runs", run.project_id)


def run_context(run: Run, tab: str) -> dict[str, Any]:
    """What the header of every tab of a run needs."""
    detail = run_detail(run)
    is_active = run.state in ACTIVE_STATES
    checks = dry_runs.checklist(run)
    counts = is_active and detail.elapsed_s is not None
    return {
        "section": "runs",
        "tab": tab,
        "run": run,
        "attempt": detail.attempts[0],
        "attempts": detail.attempts,
        "datasets": detail.datasets,
        "stage_count": len(run.spec.get("stages", [])),
        "progress": progress_of(detail.stages) if is_active else None,
        "is_active": is_active,
        "seen": edits.seen_run(run),
        "left_s": detail.left_s if is_active else None,
        "can_try": not run.is_external and run.checkpoints.filter(removed_at=None).exists(),
        "can_resume": run.state in RESUMABLE and not (run.is_external or run.is_dry_run),
        "checks": checks,
        "checks_passed": dry_runs.passed(run, checks),
        "elapsed_s": detail.elapsed_s,
        # Where the counter in the browser starts: the pauses between attempts do not count.
        "since": time.time() - (detail.elapsed_s or 0) if counts else None,
    }


def progress_of(stages: list[Stage]) -> dict[str, Any] | None:
    """Of the stage in work; `left_s` extrapolates from its own steps, None before the third."""
    stage = next((item for item in reversed(stages) if item.state == "running"), None)
    if stage is None:
        return None
    spent = (timezone.now() - stage.started_at).total_seconds()
    known = stage.steps > 0 and stage.step >= 3
    left = spent / stage.step * (stage.steps - stage.step) if known else None
    return {"stage": stage, "number": stage.index + 1, "left_s": left}
