"""What opens on a page, and pages with nothing on them, can be used by anybody, in both themes."""

import pytest
from django.urls import reverse
from playwright.sync_api import Page

from bench._axe import COLOURS, findings
from tests.browser.conftest import aside
from tests.browser.pages import every_page, furnished
from tests.webapp.support import person
from webapp.accounts.models import Project, Role, Team

pytestmark = pytest.mark.browser

OPENERS = "details > summary, [data-help], [data-open-dialog]"
THEMES = {"light": (), "dark": COLOURS}
# Pages that say what to do first, where a project has nothing yet.
EMPTY = (
    "project_home", "experiments", "runs", "compare", "queues", "reward_schemes", "datasets",
    "cluster", "jobs", "sweeps", "search", "webhooks",
)  # fmt: skip


def opened(page: Page, rules: tuple[str, ...]) -> list[str]:
    """Findings with everything on the page opened, one after the other."""
    found = []
    for index in range(page.locator(OPENERS).count()):
        opener = page.locator(OPENERS).nth(index)
        if not opener.is_visible():
            continue
        text = (opener.text_content() or "").strip()[:30]
        opener.click()
        found += [f"{page.url}, {text}: {problem}" for problem in findings(page, rules)]
        page.keyboard.press("Escape")
        for menu in page.locator("details.menu[open] > summary").all():
            menu.click()
    return found


@pytest.mark.parametrize("theme", THEMES)
def test_menus_and_dialogs(visit, owner, project, played, theme) -> None:
    world = aside(furnished, project, owner, played(steps=8, number=5))
    addresses = aside(every_page, owner, world)
    page = visit(owner, "/account/", color_scheme=theme)
    wrong = []
    for name in ("runs", "run", "run_checkpoints", "replay", "launch", "queue_item", "datasets"):
        page.goto(addresses[name])
        page.wait_for_load_state("networkidle")
        wrong += opened(page, THEMES[theme])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("theme", THEMES)
def test_a_project_with_nothing_in_it(visit, same_storage, transactional_db, theme) -> None:
    project = Project.objects.create(team=Team.objects.create(name="New"), name="New")
    user = person("newcomer", project, Role.ADMIN)
    page = visit(user, "/account/", color_scheme=theme)
    wrong = []
    for name in EMPTY:
        page.goto(reverse(name, args=[project.pk]))
        page.wait_for_load_state("networkidle")
        wrong += [f"{name}: {problem}" for problem in findings(page, THEMES[theme])]
        if name not in ("cluster", "project_home", "search"):
            assert page.locator("main .empty").count(), f"{name} does not say what to do first"
    assert not wrong, "\n".join(wrong)


def test_the_menu_of_a_phone(visit, owner, project) -> None:
    page = visit(owner, reverse("project_home", args=[project.pk]), color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("[data-menu]").click()
    assert page.locator("#sidebar").is_visible()
    assert findings(page) == []


@pytest.mark.parametrize("theme", THEMES)
def test_pages_before_signing_in(visit, transactional_db, theme) -> None:
    page = visit(None, "/login/", color_scheme=theme)
    assert findings(page) == []
    page.goto("/invitation/none/")  # of no one, or used already
    assert findings(page) == []
    visit.wrong.clear()
