"""Tabs of a run that show what it reported: Charts, Pool, Tree, Devices, Logs."""

import time

from django.http import HttpRequest, HttpResponse

from webapp.experiments.models import Run
from webapp.experiments.pages.run import RUNS, run_context
from webapp.monitoring import queries
from webapp.monitoring.overview import TREE_PANELS, chart_data
from webapp.pages import page_of, show

LOG_PAGE = 300
DEVICE_HISTORY_S = 15 * 60


@page_of(RUNS)
def charts(request: HttpRequest, run: Run) -> HttpResponse:
    context = run_context(run, "charts") | chart_data(run) | {"q": request.GET.get("q", "")}
    return show(request, "monitoring/run_charts.html", context)


@page_of(RUNS)
def pool(request: HttpRequest, run: Run) -> HttpResponse:
    spec = run.spec.get("pool", {})  # an external run has none
    data = {
        "cursor": run.cursor,
        "limit": spec.get("max_staleness"),
        "capacity": spec.get("capacity"),
        "snapshots": queries.pool_history(run),
        "decisions": queries.decisions(run),
    }
    return show(request, "monitoring/run_pool.html", run_context(run, "pool") | {"pool": data})


@page_of(RUNS)
def tree(request: HttpRequest, run: Run) -> HttpResponse:
    data = {"newest": next(iter(queries.trees(run)), None)}
    context = run_context(run, "tree") | chart_data(run, TREE_PANELS) | {"tree": data}
    context["is_off"] = run.spec.get("trainer", {}).get("tree_merge") == "off"
    return show(request, "monitoring/run_tree.html", context)


@page_of(RUNS)
def devices(request: HttpRequest, run: Run) -> HttpResponse:
    ended = run.ended_at.timestamp() if run.ended_at else time.time()
    samples = queries.device_history(ended - DEVICE_HISTORY_S)
    data = {
        "cursor": run.cursor,
        "is_over": run.ended_at is not None,  # its samples stay as they were
        "lanes": [
            {
                "source": lane.source,
                "attempt": lane.attempt,
                "spans": lane.spans,
                "shares": lane.shares,
                "busy": lane.busy,
            }
            for lane in queries.lanes(run)
        ],
        "samples": [
            {"node": sample.node, "at": sample.at, "devices": sample.devices}
            for sample in samples
            if sample.at <= ended
        ],
    }
    context = run_context(run, "devices") | {"devices": data}
    return show(request, "monitoring/run_devices.html", context)


@page_of(RUNS)
def logs(request: HttpRequest, run: Run) -> HttpResponse:
    """`?level=` and `?q=` narrow, `?before=` is the id of the oldest line of the page after."""
    level, q = request.GET.get("level", ""), request.GET.get("q", "")
    before = request.GET.get("before", "")
    lines = queries.logs(
        run,
        before=int(before) if before.isdecimal() else None,
        search=q,
        level=level if level in queries.LEVELS else "",
        limit=LOG_PAGE,
    )
    context = run_context(run, "logs") | {
        "lines": lines,
        "level": level,
        "levels": queries.LEVELS,
        "q": q,
        "before": before,
        "older": lines[0]["id"] if len(lines) == LOG_PAGE else None,
        "gaps": queries.gaps(run),
    }
    return show(request, "monitoring/run_logs.html", context, "monitoring/run_log_lines.html")
