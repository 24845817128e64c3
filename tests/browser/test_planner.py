"""The planner panel beside a spec that is edited."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_it_follows_the_spec_and_waits_while_it_is_wrong(visit, project, owner) -> None:
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=kg-search")
    plan, spec = page.locator("#plan"), page.locator("#spec")
    expect(plan).to_contain_text("Memory of a rollout worker, 192 slots")
    before = plan.inner_text()

    text = spec.input_value()
    spec.fill(text.replace("slots: 192", "slots: 384"))
    expect(plan).to_contain_text("Memory of a rollout worker, 384 slots")
    assert plan.inner_text() != before

    spec.fill(text.replace("slots: 192", "slots: none"))
    expect(plan).to_have_text("Shown once the spec is valid.")


def test_it_draws_memory_by_phase_and_advises_for_devices(visit, project, owner) -> None:
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=kg-search")
    plan = page.locator("#plan")
    expect(plan).to_contain_text("Memory of a trainer process, rl")
    expect(plan).to_contain_text("What fits 2xcpu")
    bars = plan.locator(":scope > .memory svg.memory-bar")
    expect(bars).to_have_count(3)  # an update of each stage, and a rollout worker
    expect(plan.locator(".advice .memory-limit")).to_have_count(3)  # the phases of a device
    widths = bars.first.locator("rect").evaluate_all(
        "rects => rects.map((rect) => Number(rect.getAttribute('width')))"
    )
    assert sum(widths) == pytest.approx(1000)
    expect(plan.locator(".advice tbody tr")).to_have_count(10)

    page.locator("#devices").fill("8xH100")
    expect(plan).to_contain_text("What fits 8xH100-80")
    page.locator("#devices").fill("8xTPU")
    expect(page.locator("#devices-problem")).to_contain_text("There is no device 'TPU'")
    expect(plan).to_contain_text("Memory of a rollout worker, 192 slots")
    expect(plan.locator(".advice")).to_have_count(0)
