"""Saved views: who sees and changes them, what they keep, the page that opens with one."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.webapp.support import Api, person
from webapp.accounts import saved_views
from webapp.accounts.models import Project, Role, SavedView, User
from webapp.problems import RefusedError


@pytest.fixture
def page(project: Project, owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def save(project: Project, user: User, name: str = "mine", **given: Any) -> SavedView:
    fields = {"page": "runs", "query": "?q=status%3Arunning&cursor=abc&view=v", "shared": False}
    return saved_views.save_view(project, user, name=name, **{**fields, **given})


def test_it_keeps_the_address_without_the_place_in_the_list(project: Project, owner: User) -> None:
    assert save(project, owner).query == "q=status%3Arunning"
    with pytest.raises(RefusedError, match="4000"):
        save(project, owner, "long", query="q=" + "x" * 4001)


def test_a_name_is_taken_once_for_the_team_and_once_for_each_person(
    project: Project, owner: User
) -> None:
    mate = person("mate", project, Role.EDITOR)
    save(project, owner)
    save(project, mate)
    save(project, owner, shared=True)
    save(project, owner, page="queues")
    for again in ({}, {"shared": True}):
        with pytest.raises(RefusedError, match="already"):
            save(project, owner, "MINE", **again)


def test_only_its_owner_sees_a_view_that_is_not_shared(project: Project, owner: User) -> None:
    mate = person("mate", project, Role.ADMIN)
    view = save(project, owner)
    api = Api(mate)
    assert api("GET", "saved-views").json() == []
    assert api("PATCH", f"saved-views/{view.pk}", {"name": "x"}).status_code == 404
    assert api("DELETE", f"saved-views/{view.pk}").status_code == 404
    client = Client()
    client.force_login(mate)
    answer = client.post(f"/views/{view.pk}/change", {"action": "delete"})
    assert answer.status_code == 404
    saved_views.change_view(view.pk, owner, shared=True)
    assert [one["id"] for one in api("GET", "saved-views").json()] == [view.pk]
    assert api("PATCH", f"saved-views/{view.pk}", {"name": "x"}).status_code == 200
    assert api("PATCH", f"saved-views/{view.pk}", {"shared": False}).status_code == 422


def test_a_viewer_keeps_own_views_and_takes_a_shared_one_as_default(
    project: Project, owner: User
) -> None:
    viewer = person("viewer", project, Role.VIEWER)
    shared = save(project, owner, "team's", shared=True)
    api = Api(viewer)
    made = api("POST", "saved-views", {"page": "runs", "name": "own", "query": "q=a"})
    assert made.status_code == 201
    assert api("PATCH", f"saved-views/{shared.pk}", {"is_default": True}).json()["is_default"]
    assert api("PATCH", f"saved-views/{shared.pk}", {"query": "q=b"}).status_code == 403
    assert api("PATCH", f"saved-views/{made.json()['id']}", {"shared": True}).status_code == 403
    reader = Api(viewer, scope="read")
    assert reader("POST", "saved-views", {"page": "runs", "name": "b"}).status_code == 403


def test_a_page_opens_with_the_default_of_its_person(
    project: Project, owner: User, page: Client
) -> None:
    view = save(project, owner)
    runs = f"/projects/{project.pk}/runs/"
    assert page.get(runs).status_code == 200
    saved_views.set_default(view, owner, True)
    assert page.get(runs)["Location"] == f"{runs}?q=status%3Arunning&view={view.pk}"
    assert page.get(f"{runs}?view=").status_code == 200
    assert page.get(f"{runs}?q=a").status_code == 200
    other = save(project, owner, "other", query="")
    saved_views.set_default(other, owner, True)
    assert page.get(runs)["Location"] == f"{runs}?view={other.pk}"
    saved_views.delete_view(other.pk, owner)
    assert page.get(runs).status_code == 200


def test_a_default_that_its_owner_took_back_is_not_opened(project: Project, owner: User) -> None:
    mate = person("mate", project, Role.VIEWER)
    view = save(project, owner, shared=True)
    saved_views.set_default(view, mate, True)
    saved_views.change_view(view.pk, owner, shared=False)
    client = Client()
    client.force_login(mate)
    assert client.get(f"/projects/{project.pk}/runs/").status_code == 200


def test_the_menu_saves_updates_and_deletes(project: Project, owner: User, page: Client) -> None:
    runs = f"/projects/{project.pk}/runs/"
    form = {"page": "runs", "name": "<b>mine", "query": "?q=x", "back": runs, "default": "on"}
    answer = page.post(f"/projects/{project.pk}/views/new", form)
    view = SavedView.objects.get()
    assert answer["Location"] == f"{runs}?q=x&view={view.pk}"
    text = page.get(answer["Location"]).content.decode()
    assert "&lt;b&gt;mine" in text and "<b>mine" not in text
    change = f"/views/{view.pk}/change"
    page.post(change, {"action": "update", "query": "q=y&sort=name", "back": runs})
    page.post(change, {"action": "rename", "name": "yours", "back": runs})
    page.post(change, {"action": "no_default", "back": runs})
    view.refresh_from_db()
    assert (view.query, view.name, view.defaults.count()) == ("q=y&sort=name", "yours", 0)
    answer = page.post(change, {"action": "delete", "back": "https://elsewhere.example/x"})
    assert answer["Location"] == "/?q=y&sort=name"
    assert not SavedView.objects.exists()


@pytest.mark.parametrize("where", ["runs", "compare", "review"])
def test_every_list_offers_its_views(
    where: str, project: Project, owner: User, page: Client
) -> None:
    kind = "queues" if where == "review" else where
    view = save(project, owner, "shown here", page=kind, query="")
    text = page.get(f"/projects/{project.pk}/{where}/?view={view.pk}").content.decode()
    assert "shown here" in text and 'aria-current="true"' in text


def test_the_number_of_queries_does_not_depend_on_the_number_of_views(
    project: Project, owner: User, page: Client
) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            page.get(f"/projects/{project.pk}/runs/?q=")
        return len(queries)

    save(project, owner, "first", shared=True)
    page.get(f"/projects/{project.pk}/runs/?q=")
    few = count()
    for number in range(30):
        save(project, owner, f"view {number}", shared=True)
    assert count() == few


def test_the_api_saves_what_the_page_does(api: Api, project: Project) -> None:
    body = {"page": "runs", "name": "v", "query": "q=a", "shared": True, "is_default": True}
    made = api("POST", "saved-views", body).json()
    assert (made["query"], made["shared"], made["is_default"]) == ("q=a", True, True)
    listed = api("GET", f"saved-views?project={project.pk}&page=runs").json()
    assert json.loads(json.dumps(listed)) == [made]
    assert api("POST", "saved-views", {**body, "page": "nowhere"}).status_code == 422
    assert api("DELETE", f"saved-views/{made['id']}").status_code == 204
