"""The table of 5,000 runs, and the chart of a series with a million points."""

from typing import Any

from bench.figures import Figure
from bench.ui._place import READY, Place, p95, timed_get

CALLS = 60
LONG = "long/value"
# What people do with a long table: open it, sort it by what they measure, filter, page on.
QUERIES = (
    "",
    "?sort=-success",
    "?sort=loss&columns=state,success,reward,loss,entropy,staleness,algorithm,seed,created",
    "?q=status:succeeded+algo:cispo",
    "?q=success%3E0.5+tag:baseline",
    "?sort=name",
)


def runs_table(place: Place) -> list[Figure]:
    project = place.project()
    address = f"/projects/{project}/runs/"
    with place.http as http:
        for query in QUERIES:  # code and plans are loaded once, whoever comes first
            timed_get(http, address + query)
        times = [timed_get(http, address + QUERIES[i % len(QUERIES)]) for i in range(CALLS)]
        by_query = {query: max(times[index :: len(QUERIES)]) for index, query in enumerate(QUERIES)}
    slowest = max(by_query, key=lambda query: by_query[query])
    with place.page() as page:
        page.goto(address)
        page.wait_for_load_state("networkidle")
        nodes = page.evaluate("document.querySelectorAll('*').length")
        rows = page.locator("#runs-table tr[data-row]").count()
    setup = (
        f"{CALLS} calls of the whole page, {len(QUERIES)} queries in turns, one after the other; "
        f"slowest {slowest or 'without a query'} with {by_query[slowest]:.0f} ms"
    )
    return [
        Figure("ui", "runs_table_p95_ms", p95(times), "ms", "at most 150", setup=setup),
        Figure("ui", "runs_table_nodes", nodes, "", "at most 3000", setup=f"{rows} rows shown"),
    ]


def long_chart(place: Place) -> list[Figure]:
    """The first read of the series that this server answers, then the page in a new browser."""
    run = place.run_named("long series")
    address = f"/api/v1/runs/{run}/points?names={LONG.replace('/', '%2F')}"
    with place.http as http:
        http.get("/api/v1/me").raise_for_status()
        cold = timed_get(http, address)
        answer: Any = http.get(address).json()
    buckets = len(answer["series"][0]["buckets"])
    points = sum(bucket[6] for bucket in answer["series"][0]["buckets"])
    with place.page() as page:
        page.goto(f"/runs/{run}/charts?q={LONG}")
        ready = page.evaluate(READY)
    setup = (
        f"{points:,} points in {buckets:,} buckets; first read after the server's start; "
        f"the whole page in a new browser: {ready:.0f} ms"
    )
    return [Figure("ui", "chart_1m_points_cold_ms", cold, "ms", "at most 200", setup=setup)]
