"""Opening a replay, and its parts."""

from playwright.sync_api import Page, expect


def show(page: Page, path: str) -> None:
    """Open a replay and wait until its script has drawn it."""
    page.goto(path)
    expect(page.locator(".step[data-selected]")).to_be_visible()


def step(page: Page, index: int):
    return page.locator(f'[data-step="{index}"]')
