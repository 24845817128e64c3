"""What tests of the replay share: a stored run, and pages of signed-in people."""

import os
from collections.abc import Iterator
from functools import partial

import pytest
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.webapp.reviews.samples import put
from tests.webapp.support import person
from webapp.accounts.models import Project, Role, Team
from webapp.experiments.models import Attempt, Experiment, Run


@pytest.fixture
def project(tmp_path, settings) -> Iterator[Project]:
    settings.CARAVAN_STORAGE = str(tmp_path / "storage")
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}  # nothing is collected here
    yield Project.objects.create(team=Team.objects.create(name="Team"), name="Project")


@pytest.fixture
def owner(project):
    return person("owner", project, Role.ADMIN)


@pytest.fixture
def editor(project):
    return person("editor", project, Role.EDITOR)


@pytest.fixture
def run(project) -> Run:
    experiment = Experiment.objects.create(project=project, name="Question")
    spec = {"reward": {"terms": [{"kind": "exact_answer", "weight": 1.0}]}, "stages": []}
    run = Run.objects.create(project=project, experiment=experiment, name="run", spec=spec)
    Attempt.objects.create(run=run, number=1)
    return run


@pytest.fixture
def store(run):
    return partial(put, run)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright's loop runs in this thread; the tests' own queries are synchronous.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as playwright:
        chromium = os.environ.get("CARAVAN_CHROMIUM")
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


def is_wrong(said: ConsoleMessage) -> bool:
    return said.type == "error" and "/ws/" not in said.text  # this server speaks no websockets


@pytest.fixture
def open_as(browser, live_server):
    """A page of a signed-in person; what went wrong on it fails the test."""
    opened, wrong = [], []

    def page_of(user, **options) -> Page:
        client = Client()
        client.force_login(user)
        context = browser.new_context(base_url=live_server.url, **options)
        cookie = client.cookies["caravan_session"]
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_server.url}])
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation',"
            "  (event) => console.error('CSP ' + event.violatedDirective + event.blockedURI));"
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: is_wrong(said) and wrong.append(said.text))
        page.on(
            "request",
            lambda asked: (
                asked.url.startswith((live_server.url, "data:")) or wrong.append(asked.url)
            ),
        )
        opened.append(context)
        return page

    yield page_of
    for context in opened:
        context.close()
    assert not wrong
