"""The Compare page of 20 runs, and the replay of 10,000 steps, in headless Chromium."""

from statistics import median

from bench import _replay_page
from bench.figures import Figure
from bench.ui._place import READY, Place

COMPARED = 20
TIMES = 3


def compare(place: Place) -> list[Figure]:
    found = place.api("runs", q="tag:demo experiment:gate-width", limit=COMPARED)["items"]
    for experiment in ("learning-rate", "kg-search"):
        query = f"tag:demo experiment:{experiment}"
        found += place.api("runs", q=query, limit=COMPARED)["items"]
    runs = [run["id"] for run in found if run["name"] != "live"][:COMPARED]
    address = f"/projects/{place.project()}/compare/?runs={','.join(runs)}"
    times = []
    for _ in range(1 + TIMES):  # the first one loads the server's code and plans
        with place.page() as page:
            page.goto(address)
            times.append(page.evaluate(READY) / 1000)
            drawn = page.locator(".panel .js-plotly-plot").count()
    setup = (
        f"{len(runs)} runs; median of {TIMES} openings with an empty cache, from the navigation to "
        f"performance.mark('ready'); {drawn} panels drawn by then; the first opening after "
        f"the server's start took {times[0]:.2f} s"
    )
    return [
        Figure("ui", "compare_20_runs_ready_s", median(times[1:]), "s", "at most 1.5", setup=setup)
    ]


def replay(place: Place) -> list[Figure]:
    run = place.run_named("long trajectory")
    row = place.api(f"runs/{run}/trajectories", limit=1)["items"][0]
    with place.page() as page:
        seen = _replay_page.measure(page, f"/trajectories/{row['id']}/")
    setup = f"{row['steps']:,} steps, 200 MB, one output of 20 MB; {seen.nodes} nodes at the end"
    heap = seen.heap_bytes / 1e6
    return [
        Figure(
            "ui", "replay_first_steps_s", seen.first_steps_s, "s", "at most 1", setup=setup
        ),
        Figure("ui", "replay_heap_mb", heap, "MB", "at most 300", setup=setup),
        Figure(
            "ui", "replay_slowest_frame_ms", seen.slowest_frame_ms, "ms", "at most 100",
            setup=f"{_replay_page.SCROLLS} scroll steps; {setup}",
        ),
    ]  # fmt: skip
