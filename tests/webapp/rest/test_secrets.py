"""Answers that show a secret are not kept, whatever Idempotency-Key the call has."""

from typing import Any

import pytest

from tests.webapp.law10 import build_world, fill
from tests.webapp.support import Api
from webapp.accounts.models import Project, StoredAnswer, User
from webapp.api import api as rest
from webapp.experiments import services
from webapp.experiments.models import Run

SECRETS = ("token", "link")  # names of fields that show one
CALLS: dict[str, dict[str, Any]] = {
    "tokens": {"name": "mine"},
    "projects/{project_id}/invitations": {"email": "new@example.com"},
    "external-runs": {"name": "mine"},
    "external-runs/{run_id}/attempts": {},
}


def test_these_are_all_calls_that_show_one() -> None:
    document = rest.get_openapi_schema(path_prefix="/")
    schemas = document["components"]["schemas"]

    def shows(operation: dict[str, Any]) -> bool:
        content = operation["responses"].get(201, {}).get("content", {})
        names = [part["schema"].get("$ref", "/").rsplit("/", 1)[1] for part in content.values()]
        fields = {field for name in names if name for field in schemas[name]["properties"]}
        return bool(fields & set(SECRETS))

    found = {
        path.lstrip("/")
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method != "get" and shows(operation)
    }
    assert found == set(CALLS)


@pytest.mark.parametrize("path", CALLS)
def test_a_repeat_is_told_what_was_made_and_not_the_secret(
    api: Api, project: Project, owner: User, path: str
) -> None:
    world = build_world(project, owner)
    if "runs/{" in path:
        begun = services.begin_external(project, owner, {}, services.Launch(name="theirs"))
        world["external-runs"] = begun.run.pk
    filled, key = fill(path, world), {"Idempotency-Key": "abc"}
    first = api("POST", filled, CALLS[path], **key)
    assert first.status_code == 201, first.content
    secret = next(first.json()[name] for name in SECRETS if name in first.json())
    kept = bytes(StoredAnswer.objects.get().body).decode()
    assert secret.rsplit("/", 2)[-2 if "/" in secret else -1] not in kept
    runs = Run.objects.count()
    again = api("POST", filled, CALLS[path], **key)
    assert again.status_code == 409
    assert again["Content-Type"] == "application/problem+json"
    made = first.json().get("run_id") or first.json()["id"]
    assert made in again.json()["detail"]
    assert "new key" in again.json()["detail"]
    assert Run.objects.count() == runs


def test_a_refused_call_is_not_said_to_have_made_anything(api: Api) -> None:
    key = {"Idempotency-Key": "abc"}
    first = api("POST", "tokens", {"name": " "}, **key)
    again = api("POST", "tokens", {"name": " "}, **key)
    assert (first.status_code, again.status_code) == (422, 422)
    assert again.json()["detail"] == first.json()["detail"]
    assert again["Content-Type"] == first["Content-Type"]
