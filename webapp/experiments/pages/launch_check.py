"""What the Launch page is told about a spec while it is edited."""

import json
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from engine.spec import ExperimentSpec, SpecProblem, load_spec
from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import services, spec_text, stored
from webapp.experiments.models import RewardSchemeVersion, Run
from webapp.experiments.planning import planned
from webapp.experiments.queries import config_differences
from webapp.experiments.services.stage_datasets import dataset_problems
from webapp.pages import page_of
from webapp.problems import RefusedError

MOST_DIFFERENCES = 500
MOST_CHANGES = 20


@require_POST
@page_of(Project.objects.all(), Role.EDITOR)
def check(request: HttpRequest, project: Project) -> HttpResponse:
    """For the editor: {text, changes?, parent?, checkpoint?, devices?} -> the text with the change
    made, what it says as data, what is wrong with it and where, what its run takes, what fits the
    devices, which stored reward scheme it has, and how it differs from its parent.

    A change is {path, value}, {path} for the default, or {reward: id of a scheme's version}.
    """
    try:
        given = json.loads(request.body)
        text, changes = str(given["text"]), list(given.get("changes") or [])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return JsonResponse({"detail": "Expected JSON with a text."}, status=400)
    try:
        spec_text.check_length(text)
    except RefusedError as refused:
        return JsonResponse({"detail": refused.detail}, status=refused.status)
    for change in changes[:MOST_CHANGES]:
        text = _changed(text, change, request, project)
    spec, problems = load_spec(text)
    parent = Run.objects.filter(project=project, pk=str(given.get("parent") or "")).first()
    if spec is not None:
        problems = _beyond_the_text(project, spec, parent if given.get("checkpoint") else None)
    data = spec_text.data_of(text)
    lines = spec_text.lines_of(text)
    version = stored.scheme_version(project, spec) if spec else None
    return JsonResponse(
        {
            "text": text,
            "data": data,
            "spec": spec.model_dump(mode="json") if spec else None,
            **_planned(spec, str(given.get("devices") or "")),
            "problems": [
                {
                    "path": item.path,
                    "message": item.message,
                    "line": spec_text.line_near(lines, item.path),
                }
                for item in problems
            ],
            "reward": version and stored.scheme_row(version),
            **_different(parent, spec, data),
        }
    )


def _beyond_the_text(
    project: Project, spec: ExperimentSpec, forked: Run | None
) -> list[SpecProblem]:
    """What only the project knows: datasets that are not there, weights that do not fit."""
    found = dataset_problems(project, spec)
    if forked is not None:
        try:
            found += services.fork_problems(spec, forked)
        except RefusedError as refused:
            found += refused.errors
    return [SpecProblem(one.path, one.message) for one in found]


def _different(parent: Run | None, spec: ExperimentSpec | None, data: Any) -> dict[str, Any]:
    """From the parent's frozen spec: field by field, of what is written down where that is not
    valid, since a field of another Caravan's is a difference too."""
    ours = spec.model_dump(mode="json") if spec else data
    if parent is None or not isinstance(ours, dict):
        return {"differences": [], "more_differences": 0}
    rows = config_differences([parent.asked_spec, ours])
    return {
        "differences": [
            {"path": row.path, "values": row.values} for row in rows[:MOST_DIFFERENCES]
        ],
        "more_differences": max(0, len(rows) - MOST_DIFFERENCES),
    }


def _planned(spec: ExperimentSpec | None, devices: str) -> dict[str, Any]:
    """What the run takes; where the devices cannot be read, why, and the rest all the same."""
    if spec is None:
        return {"plan": None, "advice": None, "devices_problem": ""}
    try:
        return {**planned(spec, devices), "devices_problem": ""}
    except RefusedError as error:
        return {**planned(spec, ""), "advice": None, "devices_problem": error.detail}


def _changed(text: str, change: dict[str, Any], request: HttpRequest, project: Project) -> str:
    """A change that leads nowhere leaves the text as it is: its validation says what is wrong."""
    try:
        if "reward" in change:
            rows = RewardSchemeVersion.objects.filter(scheme__project=project)
            version = access.get(rows, str(change["reward"]), access.actor_of(request))
            return stored.with_reward(text, version)
        if "value" in change:
            return spec_text.set_value(text, str(change["path"]), change["value"])
        return spec_text.remove_value(text, str(change["path"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return text
