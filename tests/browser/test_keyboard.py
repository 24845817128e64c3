"""Everything that is done often is done without a mouse."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def _arrived(page, pattern: str) -> None:
    """The page at the address has loaded, and so listens to keys."""
    expect(page).to_have_url(re.compile(pattern))
    page.wait_for_load_state("load")


def test_keys_go_to_pages_and_walk_rows(visit, project, owner, played) -> None:
    first, second = played(steps=3, number=1).run, played(steps=3, number=2).run
    page = visit(owner, "/")
    page.keyboard.press("g")
    page.keyboard.press("r")
    _arrived(page, f"/projects/{project.pk}/runs/")
    page.keyboard.press("j")
    expect(page.locator(f"tr[data-run={second.pk}] a.strong")).to_be_focused()
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator("[data-selection-count]")).to_have_text("2")
    page.get_by_role("link", name="Compare").last.click()
    _arrived(page, f"compare/.runs={second.pk},{first.pk}")
    page.keyboard.press("g")
    page.keyboard.press("r")
    _arrived(page, f"/projects/{project.pk}/runs/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    _arrived(page, f"/runs/{second.pk}/")
    page.keyboard.press("]")
    _arrived(page, f"/runs/{second.pk}/charts")
    page.keyboard.press("/")
    expect(page.get_by_label("Search metrics")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_focus_is_seen_and_the_page_can_be_skipped_to(visit, project, owner) -> None:
    page = visit(owner, reverse("runs", args=[project.pk]))
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the page")
    expect(skip).to_be_focused()
    page.keyboard.press("Tab")
    width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert width == "2px"
