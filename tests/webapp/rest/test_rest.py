"""What all calls share: problems, idempotency keys, entity tags, request ids, CSRF."""

import json
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from tests.webapp.support import SPEC, Api
from webapp.accounts.models import Project, StoredAnswer, User
from webapp.experiments.models import Run
from webapp.rest import idempotency


def test_a_problem_names_the_fields(api: Api) -> None:
    spec = {**SPEC, "surprise": 1, "seed": -1}
    response = api("POST", "runs", {"spec": spec})
    assert response.status_code == 422
    assert response["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["title"] == "Unprocessable Entity"
    assert {error["path"] for error in problem["errors"]} == {"surprise", "seed"}
    assert problem["request_id"] == response["X-Request-ID"]
    assert not Run.objects.exists()


def test_both_fields_that_disagree_are_named(api: Api) -> None:
    spec = json.loads(json.dumps(SPEC))
    spec["stages"][2]["prompts_per_step"] = 500
    errors = api("POST", "runs", {"spec": spec}).json()["errors"]
    assert {error["path"] for error in errors} >= {"stages.2.prompts_per_step", "pool.capacity"}


def test_a_malformed_body_is_a_problem_too(api: Api) -> None:
    response = api("POST", "runs", {"tags": 3})
    assert response.status_code == 422
    assert response.json()["errors"][0]["path"] == "tags"
    response = api.client.post(
        "/api/v1/runs", "{", content_type="application/json",
        headers={"Authorization": f"Bearer {api.token}"},
    )  # fmt: skip
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"


def test_a_path_that_is_not_there_is_a_problem(api: Api) -> None:
    response = api("GET", "nothing/here")
    assert response.status_code == 404
    assert response["Content-Type"] == "application/problem+json"


def test_an_idempotency_key_launches_once(api: Api) -> None:
    first = api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"})
    again = api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"})
    assert first.status_code == again.status_code == 201
    assert first.json()["id"] == again.json()["id"] == Run.objects.get().pk
    assert again["Idempotent-Replay"] == "true"
    assert (
        api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "d"}).json()["id"]
        != (first.json()["id"])
    )


def test_a_key_is_for_one_request_of_one_caller(api: Api, editor: User) -> None:
    api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"})
    other = api("POST", "runs", {"spec": SPEC, "name": "x"}, **{"Idempotency-Key": "abc"})
    assert other.status_code == 422
    theirs = Api(editor)("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"})
    assert theirs.status_code == 201
    assert Run.objects.count() == 2


def test_a_key_whose_call_is_running_is_409(api: Api) -> None:
    api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"})
    StoredAnswer.objects.update(status=None)
    response = api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"})
    assert response.status_code == 409
    StoredAnswer.objects.update(created_at=timezone.now() - idempotency.GIVEN_UP * 2)
    assert api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"}).status_code == 201


def test_an_answer_that_may_change_is_not_stored(api: Api, run: Run) -> None:
    path = f"runs/{run.pk}/resume"
    assert api("POST", path, **{"Idempotency-Key": "abc"}).status_code == 409
    assert not StoredAnswer.objects.exists()


def test_a_revoked_token_gets_no_stored_answer(api: Api, owner: User) -> None:
    api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"})
    owner.tokens.update(revoked_at=timezone.now())
    response = api("POST", "runs", {"spec": SPEC}, **{"Idempotency-Key": "abc"})
    assert response.status_code == 401


def test_who_edits_an_old_version_is_told(api: Api, run: Run) -> None:
    seen = api("GET", f"runs/{run.pk}")
    assert seen["ETag"] == seen.json()["etag"]
    first = api("PATCH", f"runs/{run.pk}", {"notes": "mine"}, **{"If-Match": seen["ETag"]})
    assert first.status_code == 200
    second = api("PATCH", f"runs/{run.pk}", {"notes": "theirs"}, **{"If-Match": seen["ETag"]})
    assert second.status_code == 412
    assert Run.objects.get().notes == "mine"
    third = api("PATCH", f"runs/{run.pk}", {"notes": "both"}, **{"If-Match": first["ETag"]})
    assert third.status_code == 200
    assert api("PATCH", f"runs/{run.pk}", {"notes": "x"}).status_code == 200


def test_an_experiment_has_a_tag_too(api: Api, run: Run) -> None:
    path = f"experiments/{run.experiment_id}"
    tag = api("GET", path)["ETag"]
    assert api("PATCH", path, {"baseline": run.pk}, **{"If-Match": tag}).status_code == 200
    assert api("PATCH", path, {"baseline": ""}, **{"If-Match": tag}).status_code == 412


def test_a_session_needs_its_csrf_token(owner: User, project: Project) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    body = {"content_type": "application/json", "data": json.dumps({"spec": SPEC})}
    assert client.get("/api/v1/me").status_code == 200
    assert client.post("/api/v1/runs", **body).status_code == 403
    client.get("/login/")
    page = client.get("/account/").content.decode()
    token = page.split('name="csrf" content="')[1].split('"')[0]
    response = client.post("/api/v1/runs", **body, headers={"X-CSRFToken": token})
    assert response.status_code == 201


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-12345678", True), ("short", False), ("<x>" * 9, False)]
)
@pytest.mark.django_db
def test_a_request_id_is_taken_over_if_it_is_one(given: str, kept: bool) -> None:
    response = Client().get("/healthz", headers={"X-Request-ID": given})
    assert (response["X-Request-ID"] == given) is kept
    assert len(response["X-Request-ID"]) >= 8


@pytest.mark.django_db
def test_it_is_ready_with_database_and_valkey(settings: Any) -> None:
    response = Client().get("/readyz")
    assert (response.status_code, response.json()["checks"]) == (
        200,
        {"database": "ok", "valkey": "ok"},
    )


@pytest.mark.django_db
def test_it_is_alive_but_not_ready_without_valkey(settings: Any) -> None:
    settings.CACHES = {
        "default": {**settings.CACHES["default"], "LOCATION": "unix:///nowhere.sock"}
    }
    assert Client().get("/healthz").status_code == 200
    response = Client().get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"]["valkey"] == "ConnectionError"


@pytest.mark.django_db
def test_pages_allow_nothing_inline() -> None:
    policy = Client().get("/login/")["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy


def test_without_a_database_it_says_so_and_when_to_ask_again(api: Api, page: Client) -> None:
    def gone(*given: Any) -> None:
        raise OperationalError("the connection is lost")

    page.raise_request_exception = False
    with connection.execute_wrapper(gone):
        answers = [api("GET", "runs"), page.get("/"), page.post("/api/v1/runs")]
    for answer in answers:
        assert (answer.status_code, answer["Retry-After"]) == (503, "2")
        assert b"The database does not answer" in answer.content
    assert [one["Content-Type"].split(";")[0] for one in answers] == [
        "application/problem+json",
        "text/html",
        "application/problem+json",
    ]


def test_a_broken_page_is_a_page_and_not_the_callers_fault(page: Client) -> None:
    page.raise_request_exception = False
    with mock.patch("webapp.accounts.access.visible", side_effect=KeyError("a bug")):
        answer = page.get("/")
    assert answer.status_code == 500
    assert b"Something broke on the server" in answer.content and b"a bug" not in answer.content


def test_the_schema_is_openapi_3_1(api: Api) -> None:
    document = api("GET", "openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/api/v1/runs/{run_id}/points" in document["paths"]


@pytest.mark.parametrize("module", ["webapp.asgi", "webapp.asgi_ingest", "webapp.queue"])
def test_the_web_tier_imports_nothing_that_learns(module: str) -> None:
    heavy = "{'torch', 'ray', 'vllm', 'transformers', 'numpy', 'workers'}"
    code = (
        f"import sys, django; django.setup(); import {module}\n"
        "from django.urls import get_resolver; get_resolver().url_patterns\n"
        f"print(sorted({heavy} & {{name.split('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
