"""Comparing in a browser: parts in view, groups, brushes by key, columns that are found."""

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


@pytest.fixture
def address(project, played) -> str:
    ids = ",".join(played(steps=12, number=n, name=f"repeat {n}").run.pk for n in (1, 2, 3))
    return f"{reverse('compare', args=[project.pk])}?runs={ids}"


def ready(page: Page) -> bool:
    return bool(page.evaluate("performance.getEntriesByName('ready').length"))


def test_every_part_comes_when_it_is_in_view(visit, owner, address) -> None:
    page = visit(owner, address)
    rates = page.locator("#part-completion tbody tr")
    expect(rates).to_have_count(3, timeout=20_000)  # the first one loads what counts
    expect(rates.nth(1)).to_contain_text("paired")
    expect(page.locator(".panel .scatterlayer .trace").first).to_be_attached()
    for part, shown in (
        ("tasks", ".flips-title"),
        ("parallel", ".parallel-axis"),
        ("config", ".config-section, .empty"),
        ("values", "tbody tr"),
    ):
        page.locator(f"#part-{part}").scroll_into_view_if_needed()
        expect(page.locator(f"#part-{part} {shown}").first).to_be_visible(timeout=20_000)
    assert ready(page)
    assert page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth") <= 0


def test_groups_are_drawn_as_means_with_a_band(visit, owner, address) -> None:
    page = visit(owner, f"{address}&group=stages.2.kind")
    expect(page.get_by_text("(n = 3)")).to_be_visible()
    expect(page.locator("#part-completion")).to_contain_text("Student")
    expect(page.locator(".panel .scatterlayer .fills path").first).to_be_attached()
    assert ready(page)


def test_brushes_work_by_key_and_are_in_the_address(visit, owner, address) -> None:
    page = visit(owner, f"{address}&part=parallel")
    count = page.locator("[data-parallel-bar] [role=status]")
    expect(count).to_have_text("3 of 3 runs")
    handle = page.get_by_role("slider", name="Upper end of rollout/reward_mean")
    handle.focus()
    page.keyboard.press("ArrowDown")
    expect(count).to_have_text("2 of 3 runs")
    assert "brush=rollout" in page.url
    page.reload()
    expect(count).to_have_text("2 of 3 runs")
    expect(page.locator(".parallel-line:not(.is-missing)")).to_have_count(3)
    expect(page.locator(".parallel-line.is-out:not(.is-missing)")).to_have_count(1)
    page.get_by_role("slider", name="Upper end of rollout/reward_mean").focus()
    page.keyboard.press("Escape")
    expect(count).to_have_text("3 of 3 runs")
    page.get_by_label("Colour").select_option("eval/completion_rate")
    assert "colour=eval" in page.url
    expect(page.locator(".parallel-line.ramp-4").first).to_be_attached()


def test_a_metric_is_found_and_becomes_a_column(visit, owner, project, address) -> None:
    page = visit(owner, reverse("runs", args=[project.pk]))
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Search metrics and config fields").fill("grad_norm")
    page.locator('#columns-found input[value="m:train/grad_norm"]').click()
    page.wait_for_url("**columns=**")
    expect(page.get_by_role("columnheader", name="train/grad_norm")).to_be_visible()
    page.get_by_text("Group", exact=True).click()
    page.get_by_role("link", name="config without the seed").click()
    expect(page.get_by_text("groups of").first).to_be_visible()
