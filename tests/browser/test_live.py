"""What a live page shows equals what a reload shows: no point lost, none twice."""

import time

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from tests.browser.conftest import aside
from webapp.experiments.models import Run
from webapp.monitoring.models import Point
from webapp.monitoring.seed import driver as seed

pytestmark = pytest.mark.browser

LOSS = 'section[data-panel="loss"] .chart'
# The points of the first drawn curve, as Plotly holds them.
DRAWN = """(selector) => {
    const drawn = document.querySelector(selector)?.data || [];
    const curve = drawn.find((one) => one.hoverinfo === "none");
    return curve ? curve.x.map((x, i) => [x, curve.y[i]]) : [];
}"""


def stored(run: Run, name: str) -> list[list[float]]:
    points = Point.objects.filter(series__run=run, series__name=name).order_by("step")
    return [[step, value] for step, value in points.values_list("step", "value")]


def send(driver: seed.Driver, first: int, count: int, **more: object) -> None:
    """Points of the loss, a batch a step."""

    def report() -> None:
        for step in range(first, first + count):
            driver.at = time.time()
            driver.metrics("trainer-0", "trainer_step", step, {"train/loss": 1 / (step + 1)})
            driver.send()

    aside(report)


def shows(page: Page, run: Run, name: str = "train/loss", selector: str = LOSS) -> None:
    """The chart comes to hold exactly the stored points within a few seconds."""
    deadline = time.monotonic() + 15
    while True:
        drawn, wanted = page.evaluate(DRAWN, selector), stored(run, name)
        if drawn == wanted:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"drawn {len(drawn)} points, stored {len(wanted)}: {drawn[-3:]}")
        page.wait_for_timeout(200)


@pytest.fixture
def working(played) -> seed.Driver:
    return played(steps=3, end="")


def test_points_arrive_and_equal_what_a_reload_shows(visit, owner, working) -> None:
    page = visit(owner, reverse("run", args=[working.run.pk]))
    expect(page.locator("#live")).to_have_text("live")
    send(working, 400, 30)
    shows(page, working.run)
    page.reload()
    shows(page, working.run)


def test_nothing_is_lost_or_doubled_by_a_lost_connection(visit, owner, working) -> None:
    page = visit(owner, reverse("run", args=[working.run.pk]))
    send(working, 400, 5)
    shows(page, working.run)
    page.context.set_offline(True)
    page.evaluate("navigator.onLine")
    send(working, 405, 40)
    expect(page.locator("#live")).to_contain_text("not live", timeout=25_000)
    page.context.set_offline(False)
    expect(page.locator("#live")).to_have_text("live", timeout=25_000)
    shows(page, working.run)
    visit.wrong[:] = [text for text in visit.wrong if "ERR_INTERNET_DISCONNECTED" not in text]


def test_more_than_a_message_carries_is_fetched(visit, owner, working) -> None:
    page = visit(owner, reverse("run", args=[working.run.pk]))
    expect(page.locator("#live")).to_have_text("live")

    def report() -> None:
        for step in range(400, 1600):
            values = {"train/loss": 1 / step, "train/entropy": 2 / step}
            working.metrics("trainer-0", "trainer_step", step, values)
        working.send()

    aside(report)
    shows(page, working.run)
    selector = 'section[data-panel="entropy"] .chart'
    page.locator(selector).scroll_into_view_if_needed()
    shows(page, working.run, "train/entropy", selector)


def test_a_point_that_is_measured_again_is_replaced(visit, owner, working) -> None:
    page = visit(owner, reverse("run", args=[working.run.pk]))
    send(working, 400, 3)
    shows(page, working.run)

    def again() -> None:
        working.at = time.time() + 1
        working.metrics("trainer-0", "trainer_step", 401, {"train/loss": 0.25})
        working.send()

    aside(again)
    shows(page, working.run)
    assert [401, 0.25] in page.evaluate(DRAWN, LOSS)


def test_the_header_follows_the_state(visit, owner, working) -> None:
    page = visit(owner, reverse("run", args=[working.run.pk]))
    expect(page.locator("#run-header .state").first).to_have_text("running")
    page.get_by_role("button", name="Pause training").click()
    expect(page.locator("#run-header")).to_contain_text("training paused")
    assert aside(Run.objects.get, pk=working.run.pk).pause_training
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-header .state").first).to_have_text("stopping")
    aside(seed.end, working, "stopped", "as asked")
    expect(page.locator("#run-header .state").first).to_have_text("stopped")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#run-header .state").first).to_have_text("queued")


def test_the_log_grows_and_each_line_is_there_once(visit, owner, working) -> None:
    page = visit(owner, reverse("run_logs", args=[working.run.pk]))
    hostile = '<img src=x onerror="window.pwned=1">'

    def report() -> None:
        for number in range(300):
            working.log("driver", f"line {number}")
        working.log("driver", hostile, "error")
        working.send()

    expect(page.locator(".log-line").first).to_be_visible()
    page.wait_for_timeout(500)
    aside(report)
    expect(page.locator(".log-line").last).to_contain_text(hostile)
    texts = page.locator(".log-text").all_inner_texts()
    assert [texts.count(f"line {number}") for number in range(300)] == [1] * 300
    assert page.evaluate("window.pwned") is None
    page.get_by_label("from level").select_option("error")
    expect(page.locator(".log-line")).to_have_count(1)


def test_the_pool_is_live_and_conserves(visit, owner, working) -> None:
    page = visit(owner, reverse("run_pool", args=[working.run.pk]))
    expect(page.locator("#pool-law")).to_contain_text("✓")

    def report(produced: int) -> None:
        working.at = time.time()
        working.report(
            "pool", kind="pool", trainer_version=9, produced=produced, consumed=3904, leased=96,
            waiting=321, discarded={"stale": 0}, categories={"3 hops": 300, "4 hops": 21},
            target={"3 hops": 0.6}, staleness={"0": 321}, oldest_s=1.0,
        )  # fmt: skip
        working.send()

    aside(report, 4321)
    expect(page.locator("#pool-law")).to_contain_text("4\u202f321 = 3\u202f904 + 321 + 96 + 0 ✓")
    expect(page.locator("#pool-categories")).to_contain_text("over")
    aside(report, 4400)
    expect(page.locator("#pool-law")).to_contain_text("does not hold")


def test_the_tree_of_a_batch_is_live(visit, owner, working) -> None:
    page = visit(owner, reverse("run_tree", args=[working.run.pk]))
    expect(page.locator("#tree-icicle rect").first).to_be_visible()
    hostile = "<img src=x onerror='window.pwned=1'>"

    def report(step: int, tokens: int) -> None:
        working.at = time.time()
        working.report(
            "trainer-0", kind="tree", step=step, parents=[-1, 0, 0, -1], tokens=[tokens, 5, 6, 9],
            samples=[2, 1, 1, 1], label=[-1, 0, 1, 0], labels=[hostile, "4 hops"], nodes=5,
            total_tokens=tokens + 20, sample_tokens=2 * tokens + 20,
        )  # fmt: skip
        working.send()

    aside(report, 1010, 20)
    expect(page.locator("#tree-readout")).to_contain_text("60 tokens, 40 computed: 1.50 times")
    expect(page.locator("#tree-left-out")).to_contain_text("smallest 1 of 5")
    blocks = page.locator("#tree-icicle rect")
    expect(blocks).to_have_count(4)
    blocks.nth(0).focus()
    expect(page.locator("#tree-readout")).to_contain_text("20 tokens, computed once for 2 samples")
    blocks.nth(1).hover()
    expect(page.locator("#tree-readout")).to_contain_text(hostile)
    aside(report, 1020, 40)
    expect(page.locator("#tree-about")).to_contain_text("step 1\u202f020")
    page.get_by_role("button", name="Earlier").click()
    expect(page.locator("#tree-about")).to_contain_text("step 1\u202f010")
    page.get_by_role("button", name="Newest").click()
    expect(page.locator("#tree-about")).to_contain_text("step 1\u202f020")
    assert page.evaluate("window.pwned") is None


def test_home_shows_a_run_that_starts(visit, owner, project, played) -> None:
    page = visit(owner, reverse("project_home", args=[project.pk]))
    expect(page.locator("#active")).to_contain_text("Nothing runs")
    made = played(steps=2, end="", name="fresh")
    expect(page.locator(f".run-card[data-run={made.run.pk}]")).to_contain_text("fresh")
