"""What nobody can do by the forms of a page: an address or a field that was written by hand."""

import base64
import json
from typing import Any

import pytest
from django.test import Client

from tests.webapp.support import Api
from webapp.accounts.models import Project

pytestmark = pytest.mark.django_db


def cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


CURSORS = [
    cursor([1], "x"),
    cursor({"t": "2026-01-01"}, "a\0"),
    cursor("x", "y"),
    cursor(1, 2),
    cursor(None, None),
    cursor(10**400, "a"),
    cursor("x"),
    "nonsense",
]


@pytest.mark.parametrize("wrong", CURSORS)
def test_a_cursor_that_was_not_given_out_is_refused(
    page: Client, api: Api, project: Project, run: Any, wrong: str
) -> None:
    refused = api("GET", f"sweeps?cursor={wrong}")
    assert refused.status_code == 400 and "page before" in refused.json()["detail"]
    answer = page.get(f"/projects/{project.pk}/sweeps/?cursor={wrong}")
    assert answer.status_code == 400 and "page before" in answer.content.decode()
    for path in ("jobs/", "review/", "runs/"):
        assert page.get(f"/projects/{project.pk}/{path}?cursor={wrong}").status_code < 500
    assert api("GET", f"runs?sort=reward&cursor={wrong}").status_code < 500


def test_groups_refuse_a_cursor_of_something_else(api: Api, run: Any) -> None:
    assert api("GET", f"run-groups?by=seed&cursor={cursor('a', 1, 3)}").status_code == 400


@pytest.mark.parametrize("query", ["find=%00", "sort=%00", "group=seed&sort=%00", "q=%00"])
def test_an_address_with_a_nul_is_refused(
    page: Client, project: Project, run: Any, query: str
) -> None:
    assert page.get(f"/projects/{project.pk}/runs/?{query}").status_code == 422


def test_a_field_that_cannot_be_stored_is_refused(page: Client, run: Any) -> None:
    answer = page.post(f"/runs/{run.pk}/edit", {"notes": "a\0b"})
    assert answer.status_code == 422 and "cannot be stored" in answer.content.decode()
    run.refresh_from_db()
    assert run.notes == ""


@pytest.mark.parametrize("definition", ["[1]", "{}"])
def test_a_scheme_of_another_form_cannot_be_tried(
    page: Client, project: Project, definition: str
) -> None:
    address = f"/projects/{project.pk}/backtests/new"
    assert page.post(address, {"definition": definition}).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"text": "a: b", "parent": ["x"]},
        {"text": "a: b", "changes": [{"path": "9" * 5000, "value": 1}]},
        {"text": "a: b", "changes": [{"path": "a." * 3000, "value": 1}]},
    ],
)
def test_the_editor_is_told_even_of_what_leads_nowhere(
    page: Client, project: Project, body: dict[str, Any]
) -> None:
    answer = page.post(
        f"/projects/{project.pk}/launch/check", json.dumps(body), content_type="application/json"
    )
    assert answer.status_code == 200 and answer.json()["problems"]
