"""Signing in, one-time links, invitations, one's own theme, roles, in a real browser."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from tests.browser.conftest import aside
from tests.webapp.support import person
from webapp.accounts import services
from webapp.accounts.models import Membership, Role, User

pytestmark = pytest.mark.browser
PASSWORD = "seven tall camels"


@pytest.fixture
def with_password(owner) -> User:
    owner.set_password(PASSWORD)
    owner.save()
    return owner


def test_a_person_signs_in_by_email_and_password(visit, with_password) -> None:
    page = visit(None, "/runs/run_0000000000000000/")
    expect(page).to_have_url(re.compile(r"/login/\?next="))
    page.get_by_label("Email").fill("Owner@example.com")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("No account has this email and password.")
    visit.wrong[:] = [text for text in visit.wrong if "401" not in text]
    page.goto("/login/")
    page.get_by_label("Email").fill("owner@example.com")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Search")).to_be_visible()
    page.locator(".sidebar-foot summary").last.click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login/"))
    page.goto("/account/")
    expect(page).to_have_url(re.compile(r"/login/\?next=/account/"))


def test_a_one_time_link_signs_in_once(visit, owner) -> None:
    secret = services.create_login_link(owner)
    address = reverse("login-link", args=[secret])
    page = visit(None, address)
    expect(page.get_by_role("heading", name="Search")).to_be_visible()
    again = visit(None, address)
    expect(again.get_by_role("alert")).to_contain_text("was used already")
    visit.wrong[:] = [text for text in visit.wrong if "401" not in text]


def test_an_invited_person_sets_a_password_and_is_in(visit, project, owner) -> None:
    page = visit(owner, reverse("team", args=[project.pk]))
    page.get_by_role("button", name="Invite").click()
    page.get_by_label("Email").fill("new@example.com")
    page.get_by_role("dialog").get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Make the link").click()
    link = page.get_by_label("Invitation link").input_value()

    guest = visit(None, link)
    guest.get_by_label("Your name").fill("Grace <b>Hopper</b>")
    guest.get_by_label("A new password").fill("short")
    guest.get_by_role("button", name="Join").click()
    expect(guest.locator(".error-text")).to_contain_text("at least 10 characters")
    visit.wrong[:] = [text for text in visit.wrong if "422" not in text]
    guest.get_by_label("A new password").fill(PASSWORD)
    guest.get_by_role("button", name="Join").click()
    expect(guest.get_by_role("heading", name="Search")).to_be_visible()
    expect(guest.locator(".sidebar-foot")).to_contain_text("Grace <b>Hopper</b>")
    expect(guest.locator(".nav").get_by_text("Launch")).to_have_count(0)
    assert Membership.objects.get(user__email="new@example.com").role == Role.VIEWER


def test_a_viewer_is_refused_with_the_reason(visit, project) -> None:
    page = visit(person("viewer", project, Role.VIEWER))
    answer = page.goto(reverse("launch", args=[project.pk]))
    assert answer.status == 403
    expect(page.locator("main")).to_contain_text("needs the role editor; yours is viewer")
    visit.wrong[:] = [text for text in visit.wrong if "403" not in text]


def test_a_token_is_shown_once(visit, project, owner) -> None:
    page = visit(owner, reverse("team", args=[project.pk]))
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Where it is used").fill("my laptop")
    page.get_by_role("dialog").get_by_role("button", name="Create", exact=True).click()
    token = page.get_by_role("textbox", name="API token").input_value()
    assert token.startswith("cvn_")
    page.goto(reverse("team", args=[project.pk]))
    expect(page.locator("main")).to_contain_text("my laptop")
    assert token not in page.content()
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Revoke").click()
    expect(page.locator("main")).to_contain_text("my laptop works no more")


def test_the_theme_is_kept_with_the_person(visit, owner) -> None:
    page = visit(owner, "/design/")
    page.locator(".sidebar-foot summary").last.click()
    with page.expect_response("**/account/theme"):
        page.get_by_label("dark").check()
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    other = visit(owner, "/design/")
    assert other.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark
    assert aside(User.objects.get, pk=owner.pk).theme == "dark"


def test_the_language_changes(visit, owner) -> None:
    page = visit(owner, "/")
    page.locator(".sidebar-foot summary").last.click()
    page.get_by_role("button", name="简体中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
