"""Chinese pages: chosen in the menu, kept over a reload, in templates and charts alike."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_a_person_reads_a_run_in_chinese(visit, owner, played) -> None:
    run = played(steps=5).run
    page = visit(owner, reverse("run", args=[run.pk]))
    page.locator(".sidebar-foot details").last.locator("summary").click()
    page.get_by_role("button", name="简体中文").click()
    expect(page.get_by_role("link", name="概览")).to_be_visible()
    expect(page.locator("[data-panel=reward] h3")).to_have_text("奖励")
    expect(page.locator("[data-panel=reward] .xtitle")).to_have_text("训练步")
    expect(page.locator("[data-chart-bar]")).to_contain_text("不平滑")
    page.reload()
    expect(page.locator("[data-panel=reward] .xtitle")).to_have_text("训练步")
    over = page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
    assert over <= 0
