"""Pages keep their places while they load: what scripts fill moves nothing that was there."""

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser
MOST = 4  # px


def between(page: Page, first: str, second: str) -> float:
    """From the top of one part to the top of another, in px."""
    tops = [page.locator(name).first.bounding_box() for name in (first, second)]
    assert tops[0] is not None and tops[1] is not None
    return tops[1]["y"] - tops[0]["y"]


@pytest.mark.parametrize(
    ("name", "filled", "below"),
    [
        ("home", "#live[data-live=live]", "#main > .stack"),
        ("run", ".panel .js-plotly-plot", "#panels"),
        ("run_tree", "#tree-icicle rect", "#tree"),
        ("run_pool", "#pool-law:not(:empty)", "#pool > .columns"),
        ("compare", ".panel .js-plotly-plot", "#part-tasks"),
    ],
)
def test_what_scripts_fill_has_its_place_before(
    visit, project, owner, played, name, filled, below
) -> None:
    runs = [played(steps=12, number=number).run.pk for number in (1, 2)]
    compared = f"{reverse('compare', args=[project.pk])}?runs={','.join(runs)}"
    address = {"home": reverse("home"), "compare": compared}.get(name)
    address = address or reverse(name, args=[runs[0]])
    above = "#part-charts" if name == "compare" else "#main"
    bare = visit(owner, address, java_script_enabled=False)
    whole = visit(owner, address)
    expect(whole.locator(filled).first).to_be_visible(timeout=20_000)
    assert abs(between(whole, above, below) - between(bare, above, below)) <= MOST
