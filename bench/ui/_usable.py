"""axe-core on every page that links lead to, and on its states, in both themes and on a phone."""

import re
from collections import deque

from playwright.sync_api import Page

from bench import _axe
from bench.figures import Figure
from bench.ui._place import Place, Theme

MOST = 120  # kinds of pages; more means that the kinds are told apart badly
WAYS = 3  # addresses of one page that set different things
LOOKS: tuple[tuple[Theme, int, tuple[str, ...]], ...] = (
    ("light", 1280, ()),
    ("dark", 1280, _axe.COLOURS),
    ("dark", 390, ()),
)
SHOWN = 5  # findings that the figure names
# What differs between two pages of one kind: ids, numbers, and values of a query.
_IDS = re.compile(r"/[a-z]+_[0-9a-z]{16}|/\d+")
_LINKS = """(selector) => [...document.querySelectorAll(selector)].map((a) => a.href)
    .filter((href) => href.startsWith(location.origin)).map((href) => href.split("#")[0])"""
_MENUS = "details.menu > summary, [data-help], [data-open-dialog], [data-menu]"


def everywhere(place: Place) -> list[Figure]:
    addresses = _crawl(place)
    place.say(f"  {len(addresses)} kinds of pages")
    found: list[str] = []
    states = 0
    for theme, width, rules in LOOKS:
        with place.page(theme, viewport={"width": width, "height": 900}) as page:
            for address in addresses:
                page.goto(place.url + address)
                page.wait_for_load_state("networkidle")
                found += [f"{address} {theme} {width}: {t}" for t in _axe.findings(page, rules)]
                states += 1
                for what, texts in _opened(page, rules):
                    found += [f"{address} {theme} {width}, {what}: {text}" for text in texts]
                    states += 1
    for text in found:
        place.say(f"  {text}")
    setup = (
        f"serious and critical; {len(addresses)} kinds of pages, {states} states with menus and "
        f"dialogs open, in light and dark at 1280 px and dark at 390 px"
    )
    if found:
        setup += "; " + "; ".join(found[:SHOWN])
    return [Figure("ui", "axe_findings", len(found), "", "at most 0", setup=setup)]


def _crawl(place: Place) -> list[str]:
    """One address of every kind of page that links lead to from a project's home, the same lists
    of a project in which nothing was made yet, and a list whose filter is wrong."""
    project = place.project()
    waiting, kinds = deque([f"/projects/{project}/"]), dict[str, set[str]]()
    found: list[str] = []
    with place.page() as page:
        while waiting:
            address = waiting.popleft()
            answer = page.goto(place.url + address)
            if answer is None or "html" not in answer.headers.get("content-type", ""):
                continue
            found.append(address)
            for path in _links(page, place, "a[href]"):
                kind = kinds.setdefault(_IDS.sub("/*", path.partition("?")[0]), set())
                if path.startswith(("/api/", "/logout")) or len(kind) == WAYS:
                    continue
                if (names := _names(path)) not in kind:
                    kind.add(names)
                    waiting.append(path)
            if len(found) > MOST:
                raise AssertionError(f"more than {MOST} kinds of pages: {found[-5:]}")
        page.goto(f"{place.url}/projects/{_empty_project(place)}/")
        found += _links(page, place, ".nav a[href]")
    return [*found, f"/projects/{project}/runs/?q=nonsense:1"]


def _links(page: Page, place: Place, selector: str) -> list[str]:
    return [link.removeprefix(place.url) for link in page.evaluate(_LINKS, selector)]


def _names(address: str) -> str:
    """What a query sets: two addresses of a page that set the same are of one kind."""
    query = address.partition("?")[2]
    return " ".join(sorted({part.partition("=")[0] for part in query.split("&")}))


def _opened(page: Page, rules: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Findings with each menu and dialog of the page open, one at a time."""
    found = []
    for opener in page.locator(_MENUS).all():
        if not opener.is_visible():
            continue
        what = (opener.get_attribute("title") or opener.inner_text()).strip()[:40] or "menu"
        opener.dispatch_event("click")  # also where something else lies over it
        found.append((what, _axe.findings(page, rules)))
        page.keyboard.press("Escape")
        if opener.get_attribute("data-menu") is not None:
            opener.dispatch_event("click")
        if page.locator("details.menu[open]").count():
            page.locator("details.menu[open] > summary").first.dispatch_event("click")
    return found


def _empty_project(place: Place) -> str:
    """A project in which nothing was made: every list shows what to do first."""
    with place.http as http:
        made = http.post("/api/v1/projects", json={"name": "empty"}).raise_for_status().json()
    return str(made["id"])
