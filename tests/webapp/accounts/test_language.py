"""The language of the pages: chosen, remembered, and used by templates and scripts alike."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.support import person
from webapp.accounts.models import Project, Role

YEAR_S = 365 * 24 * 3600


@pytest.fixture
def chinese(client: Client) -> Client:
    client.post(reverse("set_language"), {"language": "zh-hans", "next": "/login/"})
    return client


def test_a_choice_is_remembered_for_a_year(client: Client) -> None:
    answer = client.post(reverse("set_language"), {"language": "zh-hans", "next": "/login/"})
    cookie = answer.cookies["caravan_language"]
    assert (cookie.value, cookie["max-age"]) == ("zh-hans", YEAR_S)
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")


def test_the_first_visit_follows_the_browser(client: Client, db: None) -> None:
    assert "登录" in client.get("/login/", headers={"accept-language": "zh-CN,zh;q=0.9"}).text
    assert "Sign in" in client.get("/login/", headers={"accept-language": "fr"}).text


def test_pages_and_scripts_speak_it(chinese: Client, project, db) -> None:
    chinese.force_login(person("reader", project, Role.VIEWER))
    page = chinese.get(reverse("team", args=[project.pk])).text
    assert 'lang="zh-hans"' in page
    assert "查看者" in page  # a label of the model
    catalogue = chinese.get(reverse("jsi18n")).text
    assert "\\u8bad\\u7ec3\\u6b65" in catalogue  # 训练步


def test_the_menu_marks_the_language_in_force(chinese: Client, project, db) -> None:
    chinese.force_login(person("reader", project, Role.VIEWER))
    page = chinese.get(reverse("team", args=[project.pk])).text
    assert page.count('lang="zh-Hans" aria-current="true"') == 1
    assert 'value="en" lang="en" aria-current' not in page


def test_browsers_keep_the_translations_of_scripts_at_their_own_address(
    chinese: Client, project: Project
) -> None:
    chinese.force_login(person("reader", project, Role.VIEWER))
    page = chinese.get(reverse("team", args=[project.pk])).text
    found = re.search(r'<script src="([^"]*catalogue[^"]*)" defer>', page)
    assert found is not None
    kept = chinese.get(found[1])
    assert f"max-age={YEAR_S}" in kept["Cache-Control"] and "private" in kept["Cache-Control"]
    chinese.post(reverse("set_language"), {"language": "en", "next": "/login/"})
    for other in (found[1], reverse("jsi18n")):
        assert "Cache-Control" not in chinese.get(other)
    assert found[1] not in chinese.get(reverse("team", args=[project.pk])).text
