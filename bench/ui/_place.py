"""Where the pages are measured: a server with seeded data, and a browser that is signed in."""

import json
import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from cli.testing import CHROMIUM_NAMES
from workers.local.places import CHECKOUT, UserError
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack

# Not `wait_for_function`: it compiles text, which the page's content security policy forbids.
READY = """async () => {
    const marks = () => performance.getEntriesByName("ready");
    while (!marks().length) {
        if (performance.now() > 120_000) throw new Error("the page was not ready within 120 s");
        await new Promise(requestAnimationFrame);
    }
    return marks()[0].startTime;
}"""
WIDTH, HEIGHT = 1280, 900
SERVICES = ("postgres", "valkey", "web", "ingest", "jobs", "beat")
Theme = Literal["light", "dark"]


@dataclass
class Place:
    """A signed-in person at a server; `manage` gives what `subprocess` needs for a command."""

    url: str
    token: str  # of the API
    browser: Browser
    manage: Callable[..., dict[str, Any]]
    say: Callable[[str], None]
    cookies: list[Any] = field(default_factory=list)

    @property
    def http(self) -> httpx.Client:
        """A client that is signed in like the browser, for pages and the API."""
        jar = {cookie["name"]: cookie["value"] for cookie in self.cookies}
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(
            base_url=self.url, cookies=jar, headers=headers, timeout=120, trust_env=False
        )

    def api(self, path: str, **query: Any) -> Any:
        with self.http as http:
            return http.get(f"/api/v1/{path}", params=query).raise_for_status().json()

    @contextmanager
    def page(self, theme: Theme = "light", **options: Any) -> Iterator[Page]:
        """A page in a context of its own, with an empty cache."""
        size = {"width": WIDTH, "height": HEIGHT}
        context = self.browser.new_context(
            base_url=self.url, color_scheme=theme, **{"viewport": size, **options}
        )
        context.add_cookies(self.cookies)
        context.set_default_timeout(60_000)
        try:
            yield context.new_page()
        finally:
            context.close()

    def project(self) -> str:
        return str(self.api("projects")[0]["id"])

    def run_named(self, name: str) -> str:
        """Raises UserError where the seed made no such run."""
        found = self.api("runs", q=f"name:'{name}' tag:demo", limit=1)["items"]
        if not found:
            raise UserError(f"There is no made-up run {name!r}: seed_demo --scale makes it.")
        return str(found[0]["id"])


@contextmanager
def scaled_place(say: Callable[[str], None]) -> Iterator[Place]:
    """On a stack of its own, whose database `seed_demo --runs 21 --scale` fills first."""
    with scratch_stack(SERVICES, durable=True) as stack:
        done(
            stack.python("-m", "webapp.manage", "seed_demo", "--runs", "21", "--scale"),
            lambda line: say(f"  {line}"),
        )
        with place_of(stack, say) as place:
            yield place


@contextmanager
def place_of(stack: Stack, say: Callable[[str], None]) -> Iterator[Place]:
    """The place of a scratch stack."""
    access = json.loads(stack.places.secret("cli_token.json").read_text())

    def manage(*arguments: str) -> dict[str, Any]:
        return stack.python("-m", "webapp.manage", *arguments)

    with at(access["url"], access["token"], manage, say) as place:
        yield place


@contextmanager
def at(
    url: str, token: str, manage: Callable[..., dict[str, Any]], say: Callable[[str], None]
) -> Iterator[Place]:
    chromium = os.environ.get("CARAVAN_CHROMIUM") or next(
        filter(None, map(shutil.which, CHROMIUM_NAMES)), None
    )
    if chromium is None:
        raise UserError("Chromium is missing: install the package `chromium`.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        place = Place(url, token, browser, manage, say)
        place.cookies = _sign_in(place)
        yield place
        browser.close()


def _sign_in(place: Place) -> list[Any]:
    link = done(place.manage("login_link")).split()[-1]
    context = place.browser.new_context()
    page = context.new_page()
    page.goto(link)
    if not page.locator("#main").count():  # a browser that has no session is asked first
        page.locator("form button").first.click()
        page.wait_for_selector("#main")
    cookies = context.cookies()
    context.close()
    return list(cookies)


def done(command: dict[str, Any], say: Callable[[str], None] | None = None) -> str:
    """What a command wrote; `say` is told each line as it comes. Raises UserError if it fails."""
    lines = []
    with subprocess.Popen(
        command["args"],
        cwd=CHECKOUT,
        env=command["env"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if say is not None:
                say(lines[-1])
    if process.returncode != 0:
        raise UserError(f"{' '.join(command['args'])} failed: {lines[-1] if lines else ''}")
    return "\n".join(lines)


def p95(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def timed_get(http: httpx.Client, address: str) -> float:
    """Milliseconds until the whole answer is here."""
    began = time.perf_counter()
    http.get(address).raise_for_status()
    return 1000 * (time.perf_counter() - began)
