"""Presets: saved, replaced only when asked for, deleted, launched by name, seen by the project."""

import yaml
from django.test import Client

from tests.webapp.support import SPEC, Api
from webapp.accounts.models import AuditEntry, Project, User
from webapp.experiments.models import Preset, Run

TEXT = yaml.safe_dump(SPEC)
OTHER = yaml.safe_dump({**SPEC, "seed": 5})


def test_a_name_that_is_taken_is_replaced_only_when_asked(
    api: Api, editor: User, owner: User, project: Project
) -> None:
    first = api("POST", "presets", {"name": "Ours", "text": TEXT})
    assert first.status_code == 201
    theirs = Api(editor)
    refused = theirs("POST", "presets", {"name": " ours ", "text": OTHER})
    assert refused.status_code == 409
    assert f"'Ours', saved by {owner}" in refused.json()["detail"]
    assert Preset.objects.get().text == TEXT
    again = theirs("POST", "presets", {"name": "ours", "text": OTHER, "replace": True}).json()
    assert (again["id"], again["name"]) == (first.json()["id"], "Ours")
    assert again["created_by"]["email"] == owner.email
    assert again["updated_by"]["email"] == editor.email
    assert api("GET", f"presets/{again['id']}").json()["text"] == OTHER


def test_a_text_that_cannot_be_launched_is_not_saved(api: Api) -> None:
    answer = api("POST", "presets", {"name": "n", "text": "name: n\nstages: []\nsee: 1\n"})
    assert answer.status_code == 422
    assert "see" in [one["path"] for one in answer.json()["errors"]]
    assert api("POST", "presets", {"name": "n", "text": "#" * 200_001}).status_code == 413
    assert api("POST", "presets", {"name": "n" * 121, "text": TEXT}).status_code == 422
    assert not Preset.objects.exists()


def test_it_is_launched_by_its_name_or_id(api: Api) -> None:
    made = api("POST", "presets", {"name": "Zürich 🐫", "text": OTHER}).json()
    for named in ("zürich 🐫", made["id"]):
        answer = api("POST", "runs", {"preset": named, "overrides": {"stages.1.steps": 70}})
        assert answer.status_code == 201
        assert answer.json()["spec"]["seed"] == 5
    assert api("POST", "runs", {"preset": "nothing"}).status_code == 404


def test_viewers_read_and_outsiders_see_nothing(api: Api, viewer: User, outsider: User) -> None:
    made = api("POST", "presets", {"name": "Ours", "text": TEXT}).json()
    assert Api(viewer)("GET", f"presets/{made['id']}").status_code == 200
    assert Api(viewer)("DELETE", f"presets/{made['id']}").status_code == 403
    assert Api(outsider)("GET", "presets").json()["items"] == []
    assert Api(outsider)("DELETE", f"presets/{made['id']}").status_code == 404
    assert Api(outsider)("POST", "runs", {"preset": made["id"]}).status_code == 404


def test_the_page_shows_who_saved_what_and_deletes_it(
    api: Api, page: Client, owner: User, project: Project
) -> None:
    made = api("POST", "presets", {"name": "<b>Ours", "text": TEXT}).json()
    address = f"/projects/{project.pk}/launch/"
    text = page.get(address).content.decode()
    assert f"?preset={made['id']}" in text and "&lt;b&gt;Ours" in text and str(owner) in text
    opened = page.get(f"{address}?preset={made['id']}")
    assert opened.context["values"]["text"] == TEXT
    answer = page.post(f"/presets/{made['id']}/delete", follow=True)
    assert answer.redirect_chain[-1][0] == f"/projects/{project.pk}/presets/"
    assert not Preset.objects.exists()
    assert AuditEntry.objects.filter(action="preset.delete", target=made["id"]).exists()
    assert page.get(f"{address}?preset={made['id']}").status_code == 404
    assert not Run.objects.exists()


def test_a_preset_of_another_version_opens_with_its_problems(
    page: Client, api: Api, project: Project
) -> None:
    made = api("POST", "presets", {"name": "Old", "text": TEXT}).json()
    old = TEXT + "lag_limit: 3\n"
    Preset.objects.update(text=old)
    opened = page.get(f"/projects/{project.pk}/launch/?preset={made['id']}")
    assert opened.context["values"]["text"] == old
    answer = api("POST", "runs", {"preset": "Old"})
    assert [one["path"] for one in answer.json()["errors"]] == ["lag_limit"]
