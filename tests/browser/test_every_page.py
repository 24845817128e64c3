"""Every page opens without an error, a blocked style or a sideways scroll, and anybody can use it.

The pages are those of the URL map: a new one is looked at without being listed here.
"""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bench._axe import COLOURS, findings
from tests.browser.conftest import aside
from tests.browser.pages import every_page, furnished, states
from webapp.accounts.models import Project, User
from webapp.reviews.models import Trajectory

pytestmark = pytest.mark.browser

NAMELESS = """() => [...document.querySelectorAll("input, select, textarea, button, a[href]")]
    .filter((node) => node.checkVisibility() && node.type !== "hidden")
    .filter((node) => !(node.labels?.length || node.getAttribute("aria-label")
        || node.title || node.textContent.trim()))
    .map((node) => node.outerHTML.slice(0, 120))"""
TWICE = """() => [...document.querySelectorAll("[id]")].map((node) => node.id)
    .filter((id, index, all) => all.indexOf(id) !== index)"""


@pytest.fixture
def addresses(project: Project, owner: User, played) -> dict[str, str]:
    """{what it is: address} of every page, and of states of pages that have an address."""
    driver, other = played(number=5), played(steps=8, number=2).run
    world = aside(furnished, project, owner, driver)
    # So much that exporting it has a page: what is little is sent at once.
    assert aside(Trajectory.objects.filter(run=other).update, length=2**25)
    return aside(every_page, owner, world) | states(world, [other])


def keep_screenshot(page: Page, name: str) -> None:
    """What CI keeps: a picture of each page in both themes, where it names a folder for them."""
    if folder := os.environ.get("CI_ARTIFACTS"):
        path = Path(folder) / "screenshots" / f"{name.replace(', ', '-').replace(' ', '-')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=path)


@pytest.mark.parametrize(
    ("width", "theme", "rules"),
    [(1280, "light", ()), (1920, "dark", COLOURS), (390, "dark", ())],
    ids=["1280-light", "1920-dark", "390-dark"],
)
def test_it_opens_and_anybody_can_use_it(visit, owner, addresses, width, theme, rules) -> None:
    page = visit(owner, "/account/", color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    wrong = []
    for name, address in addresses.items():
        answer = page.goto(address)
        assert answer is not None and answer.status in (200, 422), address
        visit.wrong[:] = [text for text in visit.wrong if not text.startswith("422")]
        expect(page.locator("h1").first, address).to_be_visible()
        page.wait_for_load_state("networkidle")
        keep_screenshot(page, f"{name}-{width}-{theme}")
        over = page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
        if over > 0:
            wrong.append(f"{address} is {over} px wider than {width}")
        if width == 1280:
            wrong += [f"{address}: nameless {text}" for text in page.evaluate(NAMELESS)]
            wrong += [f"{address}: id twice {text}" for text in page.evaluate(TWICE)]
        wrong += [f"{address}: {text}" for text in findings(page, rules)]
    assert not wrong, "\n".join(wrong)


def test_pages_for_what_is_not_there(visit, owner) -> None:
    page = visit(owner)
    answer = page.goto("/runs/run_0000000000000000/")
    assert answer.status == 404
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    assert findings(page) == []
    visit.wrong[:] = [text for text in visit.wrong if "404" not in text]
