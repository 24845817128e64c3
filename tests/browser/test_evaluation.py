"""The evaluation tab of a run in a browser: drawn, compared by keyboard, judged anew."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from tests.browser.conftest import aside
from webapp.experiments.models import Run
from webapp.monitoring.seed import evaluations

pytestmark = pytest.mark.browser


def several(driver) -> None:
    evaluations.evaluate(driver, 3, 0, 340, 0.8, trials=6, prefix="evaluate/")
    driver.send()


@pytest.fixture
def run(played) -> Run:
    driver = played(steps=40, end="")
    aside(several, driver)
    return Run.objects.get(pk=driver.run.pk)


@pytest.mark.parametrize(
    ("width", "theme"), [(1280, "light"), (1920, "dark"), (390, "dark")], ids=str
)
def test_it_draws_funnel_curves_and_both_metrics(visit, owner, run, width, theme) -> None:
    page = visit(owner, color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(reverse("run_evaluation", args=[run.pk]))
    expect(page.get_by_role("heading", name="pass@k, pass^k")).to_be_visible()
    assert page.locator(".pass-plot polyline").count() == 2
    bars = page.locator(".funnel-bar")
    widths = [float(bars.nth(at).get_attribute("width")) for at in range(bars.count())]
    assert len(widths) == 6 and widths == sorted(widths, reverse=True)
    panel = page.locator('[data-panel="demonstrations"]')
    panel.scroll_into_view_if_needed()
    expect(panel.locator(".scatterlayer .trace")).to_have_count(2)
    assert page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth") <= 0


def test_two_are_compared_by_keyboard(visit, owner, run) -> None:
    page = visit(owner, reverse("run_evaluation", args=[run.pk]))
    count = page.locator('input[name="first"]').count()
    page.locator('input[name="first"]').nth(count - 1).focus()
    page.keyboard.press("Space")
    page.locator('input[name="second"]').nth(1).focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Compare").focus()
    page.keyboard.press("Enter")
    shown = page.locator("#comparison")
    expect(shown).to_contain_text("points")
    expect(shown).to_contain_text("McNemar’s p")
    expect(shown.locator("tbody tr").first).to_contain_text("task-")


def test_a_checkpoint_is_evaluated_from_its_tab(visit, owner, run) -> None:
    page = visit(owner, reverse("run_checkpoints", args=[run.pk]))
    page.get_by_label("Trials of each").fill("4")
    page.get_by_label("Temperature", exact=True).fill("1")
    page.get_by_role("button", name="Evaluate").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("evaluation")
    page.goto(reverse("run_evaluation", args=[run.pk]))
    expect(page.get_by_text("judges a checkpoint of this run")).to_be_visible()


def test_a_fork_opens_with_its_parents_spec(visit, owner, run) -> None:
    page = visit(owner, reverse("run_checkpoints", args=[run.pk]))
    page.get_by_role("link", name="Fork").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Fork of {run.name}")
    expect(page.locator("#verdict")).to_contain_text("can be launched")
    page.locator("#spec").fill(page.locator("#spec").input_value().replace("seed: 0", "seed: 3"))
    expect(page.locator("#problems")).to_contain_text("leave these as they were")
