"""Every page opens without an error, a blocked style or a sideways scroll, in both themes."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from webapp.experiments import services
from webapp.experiments.models import Run

pytestmark = pytest.mark.browser

PROJECT = [
    "project_home", "experiments", "runs", "launch", "compare", "reward_schemes",
    "reward_scheme_new", "datasets", "cluster", "team", "audit",
]  # fmt: skip
RUN = [
    "run", "run_evaluation", "run_charts", "run_pool", "run_tree", "run_devices",
    "run_trajectories", "run_config", "run_logs", "run_checkpoints",
]  # fmt: skip


@pytest.fixture
def addresses(project, owner, played) -> list[str]:
    first, second = played(number=5).run, played(steps=8, number=2).run
    dataset = services.create_dataset(project, owner, "questions", "tasks")
    line = b'{"prompt": "Which?", "answer": "That.", "category": "3 hops"}'
    services.add_dataset_version(dataset, owner, [line] * 30, source={"kind": "upload"})
    run = Run.objects.get(pk=first.pk)
    found = [reverse(name, args=[project.pk]) for name in PROJECT]
    found += [reverse(name, args=[first.pk]) for name in RUN]
    found += [
        reverse("compare", args=[project.pk]) + f"?runs={first.pk},{second.pk}",
        reverse("launch", args=[project.pk]) + f"?clone={first.pk}",
        reverse("experiment", args=[run.experiment_id]),
        reverse("reward_scheme", args=[run.reward_scheme.scheme_id]),
        reverse("reward_scheme_new_version", args=[run.reward_scheme.scheme_id]),
        reverse("dataset", args=[dataset.pk]),
        reverse("account"),
        reverse("design"),
    ]
    return found


NAMELESS = """() => [...document.querySelectorAll("input, select, textarea, button, a[href]")]
    .filter((node) => node.checkVisibility() && node.type !== "hidden")
    .filter((node) => !(node.labels?.length || node.getAttribute("aria-label")
        || node.title || node.textContent.trim()))
    .map((node) => node.outerHTML.slice(0, 120))"""
TWICE = """() => [...document.querySelectorAll("[id]")].map((node) => node.id)
    .filter((id, index, all) => all.indexOf(id) !== index)"""


@pytest.mark.parametrize(
    ("width", "theme"), [(1280, "light"), (1920, "dark"), (390, "light")], ids=str
)
def test_it_opens(visit, owner, addresses, width, theme) -> None:
    page = visit(owner, color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    for address in addresses:
        answer = page.goto(address)
        assert answer is not None and answer.status == 200, address
        expect(page.locator("h1").first).to_be_visible()
        page.wait_for_load_state("networkidle")
        over = page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
        assert over <= 0, f"{address} is {over} px wider than {width}"
        if width == 1280:
            assert not page.evaluate(NAMELESS), address
            assert not page.evaluate(TWICE), address


def test_pages_for_what_is_not_there(visit, owner) -> None:
    page = visit(owner)
    answer = page.goto("/runs/run_0000000000000000/")
    assert answer.status == 404
    expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    visit.wrong[:] = [text for text in visit.wrong if "404" not in text]
