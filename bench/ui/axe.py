"""axe-core on every page that links lead to, and on what opens there, in both themes and narrow."""

import re
import time
from collections import deque
from collections.abc import Iterator

from playwright.sync_api import Error, Page

from bench import _axe
from bench.figures import Figure, Options
from bench.ui._place import Place, Theme, scaled_place

MOST = 150  # kinds of pages; more means that the kinds are told apart badly
WAYS = 3  # addresses of one page that set different things
LIMIT_S = 25 * 60.0  # what takes longer is not finished, and its figure says so
TOLD = 10  # pages between two lines of progress
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
# Until scripts of the page have seen its new size.
_TWO_FRAMES = (
    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
)
_OPENERS = "#main details.menu > summary, #main [data-open-dialog]"
_FRAME = ".sidebar-foot details.menu > summary, [data-menu]"  # the same on every page
_KEYS = {"?": "keyboard help", "Control+k": "palette"}
_OPEN = "dialog[open], details.menu[open] > .menu-items, #sidebar[data-open]"


def run(options: Options) -> list[Figure]:
    with scaled_place(options.say) as place:
        return everywhere(place)


def everywhere(place: Place) -> list[Figure]:
    """Each page is loaded once, and looked at in both themes and at both widths as it stands."""
    began, found, pages, states = time.monotonic(), list[str](), 0, 0
    finished = True
    with place.page(reduced_motion="reduce") as page:
        for address in _crawl(place, page):
            for state, texts in _looked_at(page, with_frame=pages == 0):
                found += [f"{address} {state}: {text}" for text in texts]
                states += 1
            pages += 1
            if pages % TOLD == 0:
                took = (time.monotonic() - began) / 60
                place.say(f"  {pages} pages, {states} states, {len(found)} found, {took:.1f} min")
            if time.monotonic() - began > LIMIT_S:
                finished = False
                break
    for text in found:
        place.say(f"  {text}")
    setup = (
        f"serious and critical; {pages} kinds of pages, {states} states with menus and dialogs "
        f"open, in light and dark at 1280 px and dark at 390 px, "
        f"{(time.monotonic() - began) / 60:.0f} min"
    )
    if not finished:
        setup = f"not finished within {LIMIT_S / 60:.0f} min, {len(found)} found: {setup}"
    if found:
        setup += "; " + "; ".join(found[:SHOWN])
    value = len(found) if finished else None
    return [Figure("ui", "axe_findings", value, "", "at most 0", setup=setup)]


def _crawl(place: Place, page: Page) -> Iterator[str]:
    """Opens one address of every kind of page that links lead to from a project's home, a list
    whose filter is wrong, and the lists of a project in which nothing was made yet; gives each
    address while the page shows it."""
    project = place.project()
    waiting, kinds = deque([f"/projects/{project}/"]), dict[str, set[str]]()
    count = 0
    while waiting:
        address = waiting.popleft()
        if not _opens(place, page, address):
            continue
        for path in _links(page, place, "a[href]"):
            kind = kinds.setdefault(_IDS.sub("/*", path.partition("?")[0]), set())
            if path.startswith(("/api/", "/logout")) or len(kind) == WAYS:
                continue
            if (names := _names(path)) not in kind:
                kind.add(names)
                waiting.append(path)
        if (count := count + 1) > MOST:
            raise AssertionError(f"more than {MOST} kinds of pages: {address}, {list(waiting)[:5]}")
        yield address
    _opens(place, page, f"/projects/{_empty_project(place)}/")
    empty = _links(page, place, ".nav a[href]")
    for address in (f"/projects/{project}/runs/?q=nonsense:1", *empty):
        _opens(place, page, address)
        yield address


def _opens(place: Place, page: Page, address: str) -> bool:
    """Whether it is a page, which is shown then, and no file."""
    page.set_viewport_size({"width": LOOKS[0][1], "height": 900})
    try:
        answer = page.goto(place.url + address)
    except Error as error:
        if "Download is starting" not in str(error):
            raise
        page.goto("about:blank")  # else the end of the download ends the next navigation
        return False
    if answer is None or "html" not in answer.headers.get("content-type", ""):
        return False
    page.wait_for_load_state("networkidle")
    return True


def _links(page: Page, place: Place, selector: str) -> list[str]:
    return [link.removeprefix(place.url) for link in page.evaluate(_LINKS, selector)]


def _names(address: str) -> str:
    """What a query sets: two addresses of a page that set the same are of one kind."""
    query = address.partition("?")[2]
    return " ".join(sorted({part.partition("=")[0] for part in query.split("&")}))


def _looked_at(page: Page, with_frame: bool) -> Iterator[tuple[str, list[str]]]:
    """(state, findings) in each look: of the page, then of what opens on it, one at a time."""
    for theme, width, rules in LOOKS:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(_TWO_FRAMES)
        look = f"{theme} {width}"
        yield look, _axe.findings(page, rules)
        for what in _opened(page, f"{_OPENERS}, {_FRAME}" if with_frame else _OPENERS):
            yield f"{look}, {what}", _in_what_opened(page, rules)
        for key, what in _KEYS.items() if with_frame else ():
            page.keyboard.press(key)
            yield f"{look}, {what}", _in_what_opened(page, rules)
            page.keyboard.press("Escape")


def _in_what_opened(page: Page, rules: tuple[str, ...]) -> list[str]:
    if not page.locator(_OPEN).count():
        return ["opens nothing"]
    return _axe.findings(page, rules, _OPEN)


def _opened(page: Page, selector: str) -> Iterator[str]:
    """The name of each menu and dialog while it is open; of those with one name the first."""
    seen = set()
    for opener in page.locator(selector).all():
        if not opener.is_visible():
            continue
        what = (opener.get_attribute("title") or opener.inner_text()).strip()[:40] or "menu"
        if what in seen:
            continue
        seen.add(what)
        opener.dispatch_event("click")  # also where something else lies over it
        yield what
        page.keyboard.press("Escape")
        if opener.get_attribute("aria-expanded") == "true":
            opener.dispatch_event("click")
        if page.locator("details.menu[open]").count():
            page.locator("details.menu[open] > summary").first.dispatch_event("click")


def _empty_project(place: Place) -> str:
    """A project in which nothing was made: every list shows what to do first."""
    with place.http as http:
        made = http.post("/api/v1/projects", json={"name": "empty"}).raise_for_status().json()
    return str(made["id"])
