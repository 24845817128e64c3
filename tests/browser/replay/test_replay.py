"""The transcript of a replay and two replays side by side, in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.replay.pages import show, step
from tests.engine.records.test_shards import long_trajectory
from tests.webapp.reviews.samples import lookup, trajectory

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_it_renders_calls_as_calls(store, owner, open_as):
    failed = lookup("Paris", "mayor", "There is no such relation.", "no_such_relation")
    store([trajectory([("first", failed, None), ("second", lookup("Lyon", "in", "FR"), None)])])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    expect(step(page, 0).locator(".call-name")).to_have_text("lookup")
    expect(step(page, 0).locator("dd").first).to_have_text("Paris")
    expect(step(page, 0)).to_contain_text("no_such_relation")
    expect(step(page, 0)).to_contain_text("20 ms")
    expect(step(page, 1).locator(".call-result")).to_have_text("FR")


def test_ten_thousand_steps_stay_smooth(store, owner, open_as):
    (row,) = store([long_trajectory(10_000, "x" * 20_000_000)])
    page = open_as(owner)
    show(page, f"/trajectories/{row.pk}/")
    expect(step(page, 0).locator(".step-text")).to_have_text("step 0")
    frames = page.evaluate(
        """async () => {
            const box = document.querySelector("[data-transcript]");
            const frame = () => new Promise(requestAnimationFrame);
            const times = [];
            let last = await frame();
            for (let i = 1; i <= 120; i += 1) {
                box.scrollTop = (box.scrollHeight * i) / 130;
                const now = await frame();
                times.push(now - last);
                last = now;
            }
            return times.sort((a, b) => a - b);
        }"""
    )
    assert frames[60] < 50, "a frame takes too long while scrolling"
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    assert page.evaluate("performance.memory.usedJSHeapSize") < 300e6
    page.evaluate("location.hash = '#step=9999'")
    expect(step(page, 9999).locator(".step-text")).to_have_text("step 9999")
    expect(step(page, 9999)).to_be_in_viewport()
    page.evaluate("location.hash = '#step=3'")
    more = step(page, 3).get_by_role("button", name=re.compile("Show more"))
    expect(more).to_have_text("Show more (2\u202f000 of 20\u202f000\u202f000 characters)")
    more.click()
    expect(more).to_have_text("Show more (22\u202f000 of 20\u202f000\u202f000 characters)")
    expect(step(page, 3).locator(".call-result")).to_have_attribute("tabindex", "0")
    for shown in ("42", "62", "82", "102"):
        more.click()
        expect(more).to_contain_text(f"({shown}\u202f000 of")
    more.click()  # from here on it pages: no text of 20 million characters is ever in the page
    expect(more).to_contain_text("(characters 102\u202f000 to 122\u202f000 of")
    assert len(step(page, 3).locator(".call-result").inner_text()) == 20_000
    step(page, 3).get_by_role("button", name="Show earlier").click()
    expect(more).to_contain_text("(characters 82\u202f000 to 102\u202f000 of")
    page.evaluate("location.hash = '#step=3&field=result&span=15000000-15000004'")
    expect(step(page, 3).locator("mark.linked")).to_have_text("xxxx")


def test_keys_walk_steps_and_the_group(store, owner, open_as):
    store([trajectory(name=f"t{i}") for i in range(3)])
    page = open_as(owner)
    show(page, "/trajectories/t1/")
    expect(step(page, 0)).to_have_attribute("data-selected", "")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(step(page, 1)).to_have_attribute("data-selected", "")
    assert page.url.endswith("#step=1")
    slider = page.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("Step 1 · lookup"))
    page.keyboard.press("]")
    page.wait_for_url("**/trajectories/t2/*")
    page.go_back()
    page.wait_for_url("**/trajectories/t1/*")
    expect(step(page, 1)).to_have_attribute("data-selected", "")  # the address says which
    page.keyboard.press("[")
    page.wait_for_url("**/trajectories/t0/*")


def test_it_plays_to_the_end_and_stops(store, owner, open_as):
    store([trajectory()])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    page.select_option("[data-speed]", "32")
    page.click("[data-play]")
    expect(step(page, 2)).to_have_attribute("data-selected", "")
    expect(page.locator("[data-play]")).to_have_attribute("aria-pressed", "false")


def test_search_finds_chinese_and_goes_there(store, owner, open_as):
    store([trajectory()])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    page.keyboard.press("/")
    page.keyboard.type("欧元")
    expect(page.locator(".match")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(step(page, 1)).to_have_attribute("data-selected", "")
    expect(step(page, 1).locator("mark.current")).to_have_text("欧元")


def test_a_link_to_a_span_opens_at_the_span(store, owner, open_as):
    store([trajectory([(f"turn {i}", lookup("a", "b", "c"), None) for i in range(60)])])
    page = open_as(owner)
    show(page, "/trajectories/t0/#step=50&field=text&span=5-7")
    expect(step(page, 50).locator("mark.linked")).to_have_text("50")
    expect(step(page, 50)).to_be_in_viewport()


def test_two_trajectories_are_aligned_and_the_divergence_is_marked(store, owner, open_as):
    turns = [(f"turn {i}", lookup("a", "b", f"result {i}"), None) for i in range(40)]
    other = [*turns[:25], ("turn 25", lookup("a", "b", "result X"), None)]
    store([trajectory(turns, name="a"), trajectory(other, name="b")])
    page = open_as(owner)
    page.goto("/trajectories/compare?a=a&b=b")
    expect(page.locator("[data-verdict]")).to_have_text(
        "They diverge at step 25: result, character 7."
    )
    row = page.locator(".compare-row", has=page.locator(".compare-divergence"))
    expect(row).to_be_in_viewport()
    expect(row.locator("mark.diverged")).to_have_text(["25", "X"])
    page.keyboard.press("j")
    expect(page.locator(".compare-ended").first).to_be_visible()


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_nothing_overflows_the_page(store, owner, open_as, width):
    store([trajectory([("x" * 300, lookup("y" * 300, "z" * 300, "w" * 300), "v" * 300)])])
    page = open_as(owner, viewport={"width": width, "height": 900})
    show(page, "/trajectories/t0/")
    expect(step(page, 0).locator(".call-result")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
