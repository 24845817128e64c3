"""A running episode is followed turn by turn, and what is read stays where it is."""

import time

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from tests.browser.conftest import aside
from webapp.monitoring.seed import driver as seed

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
AT_END = """() => {
    const box = document.querySelector("[data-transcript]");
    return box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
}"""


def about(turns: int, name: str = "live-1", followed: bool = True) -> dict[str, object]:
    return {
        "trajectory": name, "task": "task-1", "category": "3 hops", "purpose": "train",
        "prompt": f"Where? {HOSTILE}", "started_at": time.time() - 30, "turns": turns,
        "tokens": 9 * turns, "followed": followed,
    }  # fmt: skip


def send(driver: seed.Driver, first: int, count: int, end: object = None) -> None:
    """Turns from number `first` on, and the worker's list."""

    def report() -> None:
        driver.at = time.time()
        turns = [
            {"text": f"turn {first + n} {HOSTILE}", "tool": "lookup", "arguments": "{}",
             "result": f"result {HOSTILE}\n" * 9}
            for n in range(count)
        ]  # fmt: skip
        last = about(first + count)
        driver.report("rollout-0", kind="turns", episode=last, first=first, turns=turns, end=end)
        rows = [last, about(2, "live-2", followed=False)]
        driver.report("rollout-0", kind="playing", running=5, rows=rows)
        driver.send()

    aside(report)


def numbers(page: Page) -> list[str]:
    return page.locator(".step-number").all_inner_texts()


def test_a_running_episode_is_found_and_followed_to_its_end(visit, owner, played) -> None:
    driver = played(steps=3, end="")
    send(driver, 0, 3)
    page = visit(owner, reverse("run_trajectories", args=[driver.run.pk]))
    running = page.locator("[data-running]")
    expect(running).to_contain_text(
        "5 episodes run; the turns of 1 are published. 3 are not listed"
    )
    expect(running.locator("tbody tr")).to_have_count(2)
    running.get_by_role("link").click()
    expect(page.locator(".step")).to_have_count(3)
    send(driver, 3, 4)
    expect(page.locator(".step")).to_have_count(7)
    assert page.evaluate(AT_END)

    page.locator("[data-transcript]").hover()
    page.mouse.wheel(0, -5000)  # the reader looks back: new turns must not pull the view
    expect(page.locator("[data-follow]")).to_be_visible()
    send(driver, 9, 1)  # 7 and 8 never came
    expect(page.locator(".step")).to_have_count(8)
    expect(page.locator(".live-missing")).to_have_text("Turns 7 to 8 were not published.")
    assert page.evaluate("document.querySelector('[data-transcript]').scrollTop") == 0
    page.locator("[data-follow]").click()
    assert page.evaluate(AT_END)

    send(driver, 10, 1, {"reason": "answered", "reward": 0.5, "success": True})
    said = "Ended: answered, solved, reward 0.5"
    expect(page.locator("[data-state]")).to_contain_text(said)
    before = numbers(page)
    page.reload()
    expect(page.locator("[data-state]")).to_contain_text(said)
    assert numbers(page) == before == [str(n) for n in (*range(7), 9, 10)]
    assert page.evaluate("window.pwned") is None
