"""How a replay feels in a browser: until its first steps show, memory, frames while it scrolls."""

from dataclasses import dataclass
from typing import Any

SCROLLS = 60

# Not `wait_for_function`: it compiles text, which the page's content security policy forbids.
_READY = """async () => {
    const marks = () => performance.getEntriesByName("ready");
    while (!marks().length) await new Promise(requestAnimationFrame);
    return marks()[0].startTime;
}"""
_SCROLL = """async (scrolls) => {
    const box = document.querySelector("[data-transcript]");
    const frame = () => new Promise(requestAnimationFrame);
    const times = [];
    let last = await frame();
    const tick = async () => {
        const now = await frame();
        times.push(now - last);
        last = now;
    };
    for (let i = 1; i <= scrolls; i += 1) {
        // by pages first, then by leaps over the whole length
        if (i <= scrolls / 2) box.scrollTop += box.clientHeight * 0.9;
        else box.scrollTop = (box.scrollHeight * (2 * i - scrolls)) / (scrolls + 2);
        for (let k = 0; k < 6; k += 1) await tick();
    }
    return times;
}"""


@dataclass(frozen=True)
class ReplayFigures:
    first_steps_s: float  # from the navigation until steps are drawn
    heap_bytes: int  # of JavaScript, after a collection, with everything scrolled past
    slowest_frame_ms: float  # over SCROLLS scroll steps
    nodes: int  # elements of the page


def measure(page: Any, address: str) -> ReplayFigures:
    """Open a replay in a Playwright page of Chromium whose person is signed in."""
    page.goto(address)
    ready = page.evaluate(_READY)
    frames = page.evaluate(_SCROLL, SCROLLS)
    devtools = page.context.new_cdp_session(page)
    devtools.send("HeapProfiler.collectGarbage")
    heap = devtools.send("Runtime.getHeapUsage")["usedSize"]
    devtools.detach()
    nodes = page.evaluate("document.querySelectorAll('*').length")
    return ReplayFigures(ready / 1000, int(heap), max(frames), nodes)
