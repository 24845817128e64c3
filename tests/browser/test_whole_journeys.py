"""Whole journeys over several pages: what a team comes for, from the first click to the result."""

import re
from collections.abc import Iterator

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, expect

from tests.browser.conftest import aside
from webapp.experiments import services
from webapp.experiments.models import Job, Run
from webapp.experiments.services.schemes import check_definition
from workers.control import jobs as worker
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack

pytestmark = pytest.mark.browser

LEARNED_MS = 600_000  # the smoke recipe takes about a minute on two idle cores
STRICT = {
    "name": "strict",
    "terms": [{"kind": "exact_answer", "weight": 1.0}, {"kind": "tool_errors", "weight": -0.5}],
}


def test_runs_are_compared_and_a_flip_is_opened(visit, project, owner, played) -> None:
    runs = [played(steps=10, number=number).run for number in (2, 4)]
    chosen = ",".join(run.pk for run in runs)
    page = visit(owner, reverse("compare", args=[project.pk]) + f"?runs={chosen}&part=tasks")
    expect(page.get_by_role("heading", name="A solves, B fails")).to_be_visible()
    page.get_by_role("link", name="where they part").first.click()
    expect(page).to_have_url(re.compile(r"/trajectories/compare\?a=.*&b="))
    marked = page.locator(".compare-divergence").first
    expect(marked).to_be_visible()
    expect(page.locator("main")).to_contain_text("not solved")


def test_a_scheme_is_backtested_and_launched_with(visit, project, owner, played) -> None:
    played(steps=8, number=2, name="stored")
    version = services.create_scheme(project, owner, check_definition(STRICT))
    page = visit(owner, reverse("reward_scheme", args=[version.scheme_id]))
    page.get_by_role("link", name="Backtest version 1").click()
    expect(page.get_by_label("stored")).to_be_checked()
    page.get_by_role("button", name="Start the backtest").click()
    expect(page).to_have_url(re.compile(r"/jobs/job_\w+/"))
    aside(worker.work, Job.objects.get().pk)
    page.goto(reverse("backtest", args=[Job.objects.get().pk]))
    expect(page.get_by_role("heading", name="Distribution of rewards")).to_be_visible()
    lost = page.locator("section", has=page.get_by_role("heading", name="Lose most"))
    expect(lost.get_by_role("link").first).to_have_attribute("href", re.compile("/trajectories/"))
    page.get_by_role("link", name="Launch with this version").click()
    expect(page.locator("#verdict")).to_have_text("can be launched")
    assert "tool_errors" in page.get_by_label("Spec as YAML").input_value()
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page).to_have_url(re.compile(r"/runs/run_\w+/"))
    assert Run.objects.order_by("-created_at")[0].reward_scheme == version


def test_a_run_is_cloned_with_one_change_and_compared(visit, project, owner, played) -> None:
    parent = played(steps=8, number=2, name="parent").run
    page = visit(owner, reverse("launch", args=[project.pk]) + f"?clone={parent.pk}")
    text = page.get_by_label("Spec as YAML")
    text.fill(text.input_value().replace("max_staleness: 2", "max_staleness: 1"))
    expect(page.locator("#differences")).to_contain_text("max_staleness")
    expect(page.locator("#verdict")).to_have_text("can be launched")
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page).to_have_url(re.compile(r"/runs/run_\w+/"))
    clone = Run.objects.get(parent=parent)
    page.goto(reverse("compare", args=[project.pk]) + f"?runs={parent.pk},{clone.pk}&part=config")
    row = page.locator("tr", has_text="max_staleness")
    expect(row).to_contain_text("2")
    expect(row).to_contain_text("1")
    expect(page.locator("tr", has_text="max_staleness")).to_have_count(1)
    assert "batch_size" not in page.locator("main").inner_text()


@pytest.fixture(scope="module")
def whole() -> Iterator[Stack]:
    with scratch_stack() as stack:
        yield stack


@pytest.mark.stack
def test_a_recipe_is_launched_and_learns(browser: Browser, whole: Stack) -> None:
    context = browser.new_context(base_url=whole.layout.url)
    context.set_default_timeout(30_000)
    page = context.new_page()
    try:
        page.goto(whole.login_link)
        if page.get_by_role("button", name="Sign in").count():
            page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Launch", exact=True).first.click()
        page.get_by_role("link", name=re.compile("^smoke")).click()
        expect(page.locator("#verdict")).to_have_text("can be launched")
        page.get_by_role("button", name="Launch", exact=True).click()
        expect(page).to_have_url(re.compile(r"/runs/run_\w+/"))
        state = page.locator("main span.state").first
        expect(state).to_have_text("succeeded", timeout=LEARNED_MS)
        page.reload()
        page.wait_for_selector(".panel .js-plotly-plot")
        run = page.request.get(f"/api/v1/runs/{page.url.split('/runs/')[1].strip('/')}").json()
        assert run["state"] == "succeeded"
        assert {"sft/loss", "rollout/success"} <= set(run["headline"])
    finally:
        context.close()
