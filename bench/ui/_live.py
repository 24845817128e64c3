"""A run's page with its panels live: memory over the minutes, and points after lost connections."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page

from bench.figures import Figure
from bench.ui._place import READY, Place
from workers.local.places import CHECKOUT, UserError

PANELS = 20
TALL = 2600  # px of height at which so many panels are in view
STEP_S = 0.5
OFFLINE_S = 15  # longer than the page waits for a word before it connects anew
RECONNECTS = 3
SETTLE_S = 20
START_S = 120

# Of every drawn panel, what its page holds: {metric: {level, steps: [[step, points], ...]}}.
_DRAWN = """() => {
    const found = {};
    for (const card of document.querySelectorAll(".panel:has(.js-plotly-plot)")) {
        const {store, info} = card.panel;
        for (const curve of store.curves.get(`${store.runs[0].id} ${info.metrics[0]}`) || [])
            found[curve.name] = {level: curve.level,
                steps: curve.buckets.map((bucket) => [bucket[0], bucket[6] + bucket[7]])};
    }
    return found;
}"""


def live_panels(place: Place, minutes: float) -> list[Figure]:
    with (
        live_run(place, minutes) as run,
        place.page(viewport={"width": 1280, "height": TALL}) as page,
    ):
        page.goto(f"/runs/{run}/charts")
        page.evaluate(READY)
        panels = page.locator(".panel .js-plotly-plot").count()
        if panels < PANELS:
            raise UserError(f"Only {panels} panels are in view, {PANELS} are needed.")
        page.wait_for_timeout(1000 * SETTLE_S)  # what loads once has loaded
        before = _heap(page)
        until = time.monotonic() + 60 * minutes
        for number in range(RECONNECTS):
            page.wait_for_timeout(1000 * 60 * minutes / (RECONNECTS + 1) - 1000 * OFFLINE_S)
            page.context.set_offline(True)
            page.wait_for_timeout(1000 * OFFLINE_S)
            page.context.set_offline(False)
            place.say(f"  connection {number + 1} of {RECONNECTS} was lost and is back")
        page.wait_for_timeout(1000 * max(1.0, until - time.monotonic()))
        grown = (_heap(page) - before) / 1e6
        wrong, points = _compared(place, page, run)
    name = f"{minutes:g}_min"
    setup = (
        f"{panels} panels for {minutes:g} minutes, a step each {STEP_S} s, "
        f"{RECONNECTS} connections lost for {OFFLINE_S} s each; {points:,} points compared"
    )
    return [
        Figure("ui", f"live_panels_heap_growth_mb_{name}", grown, "MB", "at most 20", setup=setup),
        Figure("ui", f"live_panels_wrong_points_{name}", wrong, "points", "at most 0", setup=setup),
    ]


@contextmanager
def live_run(place: Place, minutes: float) -> Iterator[str]:
    """A run that reports while the page is open; yields its id once it reports trained steps."""
    steps = int((60 * minutes + 3 * SETTLE_S) / STEP_S)
    command = place.manage(
        "seed_demo", "--runs", "0", "--live",
        "--live-steps", str(steps), "--step-seconds", str(STEP_S),
    )  # fmt: skip
    with subprocess.Popen(
        command["args"], cwd=CHECKOUT, env=command["env"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            yield _begun(place, process)
        finally:
            process.terminate()


def _begun(place: Place, process: Any) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = place.api("runs", q="tag:demo name:live status:running", limit=1)["items"]
        if found:
            names = {one["name"] for one in place.api(f"runs/{found[0]['id']}/series")["items"]}
            if "train/loss" in names:
                return str(found[0]["id"])
        time.sleep(0.5)
    raise UserError("The live run did not begin to train.")


def _heap(page: Page) -> int:
    devtools = page.context.new_cdp_session(page)
    devtools.send("HeapProfiler.collectGarbage")
    used = devtools.send("Runtime.getHeapUsage")["usedSize"]
    devtools.detach()
    return int(used)


def _compared(place: Place, page: Page, run: str) -> tuple[int, int]:
    """(points that the page misses or counts twice, points looked at), up to where it stands.

    A page may stand a few messages behind what is stored: only steps up to its own newest count.
    """
    drawn: dict[str, Any] = page.evaluate(_DRAWN)
    wrong = seen = 0
    for name, curve in drawn.items():
        if not curve["steps"]:
            continue
        answer = place.api(f"runs/{run}/points", names=name)
        stored = answer["series"][0]
        width = 2 ** max(curve["level"], stored["level"])
        upto = curve["steps"][-1][0] // width * width
        shown = _by_bucket(((step, count) for step, count in curve["steps"]), width, upto)
        kept = _by_bucket(((b[0], b[6] + b[7]) for b in stored["buckets"]), width, upto)
        seen += sum(kept.values())
        wrong += sum(abs(shown.get(at, 0) - kept.get(at, 0)) for at in shown.keys() | kept.keys())
    return wrong, seen


def _by_bucket(steps: Any, width: int, upto: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for step, count in steps:
        if step < upto:
            found[step // width] = found.get(step // width, 0) + count
    return found
