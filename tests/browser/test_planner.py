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
