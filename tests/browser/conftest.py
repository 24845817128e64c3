"""A real web process on the tests' database, and pages of signed-in people in headless Chromium."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.webapp.support import person
from webapp.accounts.models import Project, Role, Team, User
from webapp.experiments import services
from webapp.experiments.recipes import recipe
from webapp.experiments.services import Launch
from webapp.monitoring.seed import driver as seed

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright's loop runs in this thread; the tests' own queries are synchronous.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=os.environ.get("CARAVAN_CHROMIUM"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        yield started
        started.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


def aside(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call in another thread: Playwright's loop runs in this one, and services announce news."""

    def call() -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@pytest.fixture(scope="session")
def web(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web process, as `up` starts it, on the tests' database."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    home = tmp_path_factory.mktemp(f"home-{port}-")
    url = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "CARAVAN_HOME": str(home),
        "CARAVAN_STORAGE": str(home / "storage"),
        "CARAVAN_URL": url,
        "CARAVAN_ALLOWED_HOSTS": "127.0.0.1",
        "DATABASE_URL": _database_url(),
    }
    manage = [sys.executable, "-m", "webapp.manage", "collectstatic", "--noinput", "-v0"]
    subprocess.run(manage, cwd=CHECKOUT, env=environment, check=True)
    log = (home / "web.log").open("wb")
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "webapp.asgi:application", *arguments],
        cwd=CHECKOUT,
        env=environment,
        stdout=log,
        stderr=log,
    )
    try:
        _wait(url, process, home / "web.log")
        yield url
    finally:
        process.terminate()
        process.wait(10)
        log.close()


def _database_url() -> str:
    given = connections["default"].settings_dict
    rest = {"host": given["HOST"], "port": given["PORT"]}
    query = urlencode({key: value for key, value in rest.items() if value})
    password = f":{given['PASSWORD']}" if given["PASSWORD"] else ""
    return f"postgresql://{given['USER']}{password}@/{given['NAME']}?{query}"


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            httpx.get(f"{url}/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"the web process does not answer: {log.read_text()}")


@pytest.fixture
def same_storage(web: str, settings: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Blobs that tests write are those that the web process reads."""
    port = web.rpartition(":")[2]
    home = next(tmp_path_factory.getbasetemp().glob(f"home-{port}-*"))
    place = home / "storage"
    settings.CARAVAN_STORAGE = str(place)


@pytest.fixture
def project(same_storage: None, transactional_db: None) -> Project:
    return Project.objects.create(team=Team.objects.create(name="Team"), name="Search")


@pytest.fixture
def owner(project: Project) -> User:
    return person("owner", project, Role.ADMIN)


@pytest.fixture
def played(project: Project, owner: User) -> Callable[..., seed.Driver]:
    """A run that reported like a real one: `steps` of its last stage, ended or still at work."""

    def play(
        steps: int = 20, number: int = 1, end: str = "succeeded", **launch: Any
    ) -> seed.Driver:
        spec = services.check_spec(recipe("kg-search").text)
        began = time.time() - 600
        made = seed.begin(project, owner, spec, Launch(**launch), number, began)
        for _ in seed.play(made, steps):
            pass
        made.send()
        if end:
            seed.end(made, end)
        return made

    return partial(aside, play)


@pytest.fixture
def visit(browser: Browser, web: str, transactional_db: None) -> Iterator[Callable[..., Page]]:
    """A page of a signed-in person. What went wrong on it fails the test: exceptions, errors in
    the console, reports of the content security policy, requests to anywhere else.
    """
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def open_page(user: User | None, path: str = "/", **options: Any) -> Page:
        context = browser.new_context(
            base_url=web, viewport={"width": 1280, "height": 900}, **options
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        if user is not None:
            client = Client()
            client.force_login(user)
            cookie = client.cookies["caravan_session"]
            context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": web}])
        page = context.new_page()
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation',"
            "  (event) => console.error('CSP ' + event.violatedDirective + event.blockedURI));"
        )
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        page.on("console", lambda said: _take(said, page, wrong))
        page.on("response", lambda answer: _failed(answer, wrong))
        page.on("request", lambda asked: _outside(asked.url, web, wrong))
        page.goto(path)
        return page

    open_page.wrong = wrong  # type: ignore[attr-defined]
    yield open_page
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(wrong)


def _failed(answer: Any, wrong: list[str]) -> None:
    if answer.status >= 400:
        wrong.append(f"{answer.status} {answer.url}")


def _take(said: Any, page: Page, wrong: list[str]) -> None:
    if said.type == "error" and "Failed to load resource" not in said.text:
        wrong.append(f"{page.url}: {said.text}")


def _outside(url: str, web: str, wrong: list[str]) -> None:
    if not url.startswith((web, web.replace("http", "ws", 1), "data:")):
        wrong.append(f"asked for {url}")
