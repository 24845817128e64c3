"""Ctrl-K goes anywhere by name; a notification tells that a run ended, on whichever page."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from tests.browser.conftest import aside
from webapp.experiments import services
from webapp.monitoring.seed import driver as seed

pytestmark = pytest.mark.browser

# Keeps what the page would have shown, as headless browsers show no notifications.
RECORDER = """
    const told = (name, value) => document.documentElement.setAttribute(name, value);
    let heard = 0;
    document.addEventListener("runschanged", () => told("data-heard", (heard += 1)));
    window.Notification = class {
      constructor(title, options) { told("data-shown", `${title} ${options.tag}`); }
      static permission = "granted";
      static requestPermission = async () => "granted";
    };
"""


def test_it_goes_to_pages_actions_and_what_has_a_name(visit, project, owner, played) -> None:
    run = played(steps=3).run
    page = visit(owner, reverse("run", args=[run.pk]))
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Page, action")
    expect(field).to_be_focused()
    field.fill("chrts")  # letters in their order suffice
    expect(page.locator("#palette-list li").first).to_contain_text("Charts")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/runs/{run.pk}/charts"))
    page.wait_for_load_state("load")
    page.keyboard.press("Control+k")
    field.fill("team")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/projects/{project.pk}/team/"))
    page.wait_for_load_state("load")
    page.keyboard.press("Control+k")
    field.fill("inv")
    expect(page.locator("#palette-list li").first).to_contain_text("Invite")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Invite somebody")).to_be_visible()


def test_it_finds_runs_and_says_when_nothing_is_called_that(visit, project, owner, played) -> None:
    run = played(steps=3).run
    page = visit(owner, reverse("project_home", args=[project.pk]))
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Page, action")
    field.fill(run.name)
    page.locator("#palette-list li", has_text=run.name).first.click()
    expect(page).to_have_url(re.compile(f"/runs/{run.pk}/"))
    page.wait_for_load_state("load")
    page.keyboard.press("Control+k")
    field.fill("~")
    expect(page.locator("#palette-said")).to_contain_text("Nothing is called that")
    page.keyboard.press("Escape")
    expect(field).to_be_hidden()


def test_it_finds_chinese_names_and_leads_on_to_the_whole_search(visit, project, owner) -> None:
    aside(services.create_dataset, project, owner, "知识图谱的问题", "tasks")
    page = visit(owner, reverse("project_home", args=[project.pk]))
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Page, action")
    field.fill("图谱")
    expect(page.locator("#palette-list li").first).to_contain_text("知识图谱的问题")
    page.locator("#palette-list li", has_text="Search everything for “图谱”").click()
    expect(page).to_have_url(re.compile(f"/projects/{project.pk}/search/"))


def test_it_tells_once_that_a_run_ended_on_any_page(visit, project, owner, played) -> None:
    made = played(steps=3, end="")
    page = visit(owner, "/")
    page.add_init_script(RECORDER)
    page.goto(reverse("team", args=[project.pk]))
    html = page.locator("html")
    expect(html).to_have_attribute("data-heard", "1")
    aside(seed.end, made, "failed", "It broke.")
    said = f"{made.run.name}: failed {made.run.pk}.failed"
    expect(html).to_have_attribute("data-shown", said)


def test_notifications_can_be_switched_off(visit, project, owner, played) -> None:
    made = played(steps=3, end="")
    page = visit(owner, "/")
    page.add_init_script(RECORDER)
    page.reload()
    html = page.locator("html")
    expect(html).to_have_attribute("data-heard", "1")
    switch = page.get_by_role("button", name="Notify me when a run ends")
    expect(switch).to_have_attribute("aria-pressed", "true")
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "false")
    aside(seed.end, made, "failed", "It broke.")
    expect(html).not_to_have_attribute("data-heard", "1")
    expect(html).not_to_have_attribute("data-shown", re.compile("."))
