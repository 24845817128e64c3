"""Comments on a replay that reach a colleague, and a queue reviewed by keyboard."""

import pytest
from playwright.sync_api import expect

from tests.browser.replay.pages import show, step
from tests.webapp.reviews.samples import lookup, trajectory
from webapp.reviews import services
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


SELECT = """(name) => {
    const text = document.querySelector('[data-step="0"] [data-field="result"]').firstChild;
    const range = document.createRange();
    range.setStart(text, text.data.indexOf(name));
    range.setEnd(text, text.data.indexOf(name) + name.length);
    document.getSelection().removeAllRanges();
    document.getSelection().addRange(range);
}"""


def test_a_comment_on_a_span_reaches_a_colleague_without_a_reload(store, owner, editor, open_as):
    result = "😀 France 法国"  # two code units make one character
    store([trajectory([("call", lookup("Lyon", "country", result), None)])])
    colleague = open_as(editor)
    show(colleague, "/trajectories/t0/")
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    expect(step(page, 0).locator(".call-result")).to_be_visible()
    # Comments that arrive draw the steps anew, which ends a selection.
    expect(page.locator("[data-comments]")).to_contain_text("No comments yet")
    page.evaluate(SELECT, "法国")
    page.keyboard.press("c")
    expect(page.locator("[data-comments]")).to_contain_text("characters 9 to 11")
    page.keyboard.type("Is this **right**?")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".comment-body strong")).to_have_text("right")
    expect(step(page, 0).locator("mark.commented")).to_have_text("法国")
    expect(step(colleague, 0).locator("mark.commented")).to_have_text("法国")
    colleague.click("[data-tab=comments]")
    expect(colleague.locator(".comment")).to_contain_text("Owner")
    expect(colleague.get_by_role("button", name="Edit")).to_have_count(0)
    colleague.get_by_role("button", name="Resolve").click()
    expect(page.locator(".comment")).to_contain_text("resolved")
    expect(step(page, 0).locator("mark.commented")).to_have_count(0)


def test_a_queue_is_reviewed_with_the_keyboard_alone(store, run, owner, open_as):
    store([trajectory(name=f"t{i}") for i in range(2)])
    queue = services.create_queue(
        run, owner, name="Q", rubric=Rubric(labels=["clean"]), wanted=Filter(), size=5
    )
    page = open_as(owner)
    page.goto(f"/queues/{queue.pk}/")
    page.get_by_role("button", name="Review (2)").click()
    for place, keys in enumerate(("a1s", "rs"), 1):
        expect(page.locator(".verdict")).to_contain_text(f"{place} of 2")
        page.wait_for_load_state("networkidle")
        for key in keys:
            page.keyboard.press(key)
    expect(page.locator("body")).to_contain_text("Nothing is left for you")
    verdicts = [item.verdicts.get() for item in queue.items.order_by("position")]
    assert [v.accepted for v in verdicts] == [True, False]
    assert verdicts[0].labels == ["clean"]
