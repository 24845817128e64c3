"""Every page of the URL map and every call of the API, with a valid body and query for each.

Whoever adds a call that these tables do not know makes a test of outsiders fail.
"""

import json
from collections.abc import Iterator
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import URLPattern, URLResolver, get_resolver

from tests.webapp.law10 import fill
from tests.webapp.support import SPEC, Api
from webapp.api import api as rest


def pages(patterns: Any = None, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(route, name) of everything that is no API."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            if pattern.namespace != "api":
                yield from pages(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route, pattern.name or route


def operations(of: Any = rest) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path below the API's root, OpenAPI operation)."""
    for path, methods in of.get_openapi_schema(path_prefix="/")["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path.lstrip("/"), operation


SWEEP = {
    "project": "projects",
    "spec": SPEC,
    "space": [{"kind": "choice", "path": "seed", "values": [1, 2]}],
    "budget": {"trials": 2},
}


# A body for every unsafe call that is valid, whoever sends it.
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "projects"): {"name": "New"},
    ("PATCH", "projects/{project_id}"): {"max_running": 3},
    ("PATCH", "projects/{project_id}/members/{user_id}"): {"role": "viewer"},
    ("DELETE", "projects/{project_id}/members/{user_id}"): {},
    ("POST", "projects/{project_id}/invitations"): {"email": "new@example.com"},
    ("DELETE", "invitations/{invitation_id}"): {},
    ("POST", "projects/{project_id}/webhooks"): {
        "url": "https://example.com/",
        "events": ["run.failed"],
    },
    ("PATCH", "webhooks/{webhook_id}"): {"enabled": False},
    ("DELETE", "webhooks/{webhook_id}"): {},
    ("POST", "webhooks/{webhook_id}/rotate"): {},
    ("POST", "webhooks/{webhook_id}/test"): {},
    ("POST", "webhooks/{webhook_id}/deliveries/{delivery_id}/again"): {},
    ("POST", "tokens"): {"name": "mine"},
    ("DELETE", "tokens/{token_id}"): {},
    ("POST", "presets"): {"project": "projects", "name": "p", "text": json.dumps(SPEC)},
    ("DELETE", "presets/{preset_id}"): {},
    ("POST", "specs/validate"): {"spec": SPEC},
    ("POST", "runs"): {"project": "projects", "spec": SPEC},
    ("POST", "external-runs"): {"project": "projects", "name": "x"},
    ("POST", "external-runs/{run_id}/attempts"): {},
    ("PATCH", "runs/{run_id}"): {"notes": "x"},
    ("DELETE", "runs/{run_id}"): {},
    ("POST", "runs/{run_id}/tags"): {"add": ["x"]},
    ("POST", "runs/{run_id}/stop"): {},
    ("POST", "runs/{run_id}/resume"): {},
    ("POST", "runs/{run_id}/pause"): {"rollouts": True},
    ("POST", "runs/{run_id}/queue"): {"priority": 1},
    ("POST", "experiments"): {"project": "projects", "name": "New"},
    ("PATCH", "experiments/{experiment_id}"): {"notes": "x"},
    ("DELETE", "experiments/{experiment_id}"): {},
    ("POST", "reward-schemes"): {"project": "projects", "definition": {"name": "New"}},
    ("POST", "reward-schemes/{scheme_id}/versions"): {"definition": {"name": "New"}},
    ("POST", "datasets"): {"project": "projects", "name": "New", "kind": "tasks"},
    ("POST", "datasets/{dataset_id}/versions"): {},
    ("DELETE", "datasets/{dataset_id}"): {},
    ("DELETE", "datasets/{dataset_id}/versions/{number}"): {},
    ("DELETE", "checkpoints/{checkpoint_id}"): {},
    ("POST", "checkpoints/{checkpoint_id}/evaluate"): {},
    ("POST", "checkpoints/{checkpoint_id}/try"): {},
    ("POST", "trajectories/{pk}/comments"): {"text": "x"},
    ("PATCH", "comments/{pk}"): {"text": "x"},
    ("DELETE", "comments/{pk}"): {},
    ("POST", "sweeps/preview"): SWEEP,
    ("POST", "sweeps"): SWEEP,
    ("POST", "sweeps/{sweep_id}/pause"): {},
    ("POST", "sweeps/{sweep_id}/continue"): {},
    ("POST", "sweeps/{sweep_id}/stop"): {},
    ("POST", "queues"): {"run": "runs", "name": "New"},
    ("PATCH", "queues/{pk}"): {"closed": True},
    ("POST", "run-changes"): {"project": "projects", "action": "tag", "tag": "x", "all": True},
    ("POST", "saved-views"): {"project": "projects", "page": "runs", "name": "V", "shared": True},
    ("PATCH", "saved-views/{view_id}"): {"name": "W"},
    ("DELETE", "saved-views/{view_id}"): {},
    ("POST", "queues/{pk}/next"): {},
    ("POST", "queue-items/{pk}/claim"): {},
    ("DELETE", "queue-items/{pk}/claim"): {},
    ("PUT", "queue-items/{pk}/verdict"): {"choice": "accepted"},
    ("DELETE", "queue-items/{pk}/verdict"): {},
    ("PUT", "queue-items/{pk}/marks/{step}"): {"mark": "good"},
    ("DELETE", "queue-items/{pk}/marks/{step}"): {},
    ("POST", "inbox/read"): {},
    ("POST", "queues/{pk}/dataset"): {"dataset": "datasets"},
    ("POST", "jobs/{job_id}/again"): {},
    ("POST", "runs/{run_id}/exports"): {},
    ("POST", "runs/{run_id}/tasks"): {"name": "tasks of it"},
    ("POST", "jobs/{job_id}/cancel"): {},
    ("POST", "projects/{project_id}/storage/measure"): {},
    ("POST", "projects/{project_id}/storage/prune"): {"pools": True},
    ("POST", "backtests"): {"scheme_version": "scheme-version", "runs": ["runs"]},
}


# Queries that a call needs, or that make it ask for something foreign.
QUERIES = {
    "compare": "runs={runs}",
    "compare/curves": "runs={runs}&names=train/loss",
    "compare/completion": "runs={runs}",
    "compare/tasks": "first={runs}&second={runs}",
    "evaluations/compare": "first={evaluations}&second={evaluations}",
    "trajectories/{pk}/divergence": "other={trajectories}",
    "search": "project={projects}&q=Zan",
    "search/trajectories": "project={projects}&q=Zan",
    "trajectories/{pk}/search": "q=e",
    "trajectories/{pk}/steps/{step}/field/{name}/image": "at=0",
    "trajectories/{pk}/context": "step=0",
    "runs/{run_id}/points": "after=0",
}


# Fields and parameters that name something of a project, with the noun they name.
REFERENCES = {
    "project": "projects",
    "parent": "runs",
    "checkpoint": "checkpoints",
    "first": "evaluations",
    "second": "evaluations",
    "preset": "presets",
    "reward": "scheme-versions",
    "baseline": "runs",
    "run": "runs",
    "runs": "runs",
    "dataset": "datasets",
    "other": "trajectories",
    "experiment": "experiments",
    "assignees": "members",
    "reply_to": "comments",
    "scheme_version": "scheme-version",
    "dataset_version": "dataset-version",
    "against": "scheme-version",
}


def body_of(method: str, path: str, world: dict[str, str]) -> dict[str, Any]:
    """The valid body of a call, with ids of the world for the nouns it names, one or a list."""

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(one) for one in value]
        return world.get(value, value) if isinstance(value, str) else value

    body = BODIES.get((method, path), {})
    return {key: filled(value) if key in REFERENCES else value for key, value in body.items()}


def call(api: Api, method: str, path: str, world: dict[str, str]) -> Any:
    """Call with a valid body, query and ids of the world."""
    body = body_of(method, path, world)
    filled = fill(path, {**world, "recipes": "kg-search"})
    if query := QUERIES.get(path):
        filled += "?" + query.format(**world)
    if path.endswith("/versions") and path.startswith("datasets") and method == "POST":
        return upload(api, filled)
    return api(method, filled, body if method != "GET" else None)


def upload(api: Api, path: str) -> Any:
    file = SimpleUploadedFile("rows.jsonl", b'{"prompt": "a", "answer": "b"}')
    headers = {"Authorization": f"Bearer {api.token}"} if api.token else {}
    return api.client.post(f"/api/v1/{path}", {"file": file}, headers=headers)
