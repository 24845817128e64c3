"""Workers whose clocks are hours off: nothing lasts a negative time, nothing is out of order."""

import json
from typing import Any

import pytest
from django.test import Client

from tests.webapp.calls import pages
from tests.webapp.law10 import fill
from tests.webapp.support import Api, Driver, metrics
from webapp.monitoring.ingest import parsing
from webapp.monitoring.ingest.storing import store

HOURS_OFF = (-2, 2)


def report(driver: Driver, hours: float, at: float) -> None:
    """A step and the spans around it, by a worker whose clock is so far off."""
    skewed = at + 3600 * hours
    source = f"worker{hours:+}"
    items: list[Any] = [
        metrics(1, 1, source=source, at=skewed, train__loss=0.5),
        {
            "kind": "spans", "source": source, "seq": 2, "at": skewed,
            "spans": [["generate", skewed - 10, skewed - 4], ["tool", skewed - 4, skewed]],
        },
    ]  # fmt: skip
    outcome = store(driver.token, parsing.parse(json.dumps({"items": items}).encode()))
    assert not outcome.rejected


@pytest.mark.parametrize("hours", HOURS_OFF)
def test_durations_come_from_one_clock(driver: Driver, api: Api, hours: int) -> None:
    report(driver, hours, 1.8e9)
    lane = json.loads(api("GET", f"runs/{driver.run.pk}/spans").content)["lanes"][0]
    lasted = [stop - start for _, start, stop in lane["spans"]]
    assert lasted == [6.0, 4.0]
    found = json.loads(api("GET", f"runs/{driver.run.pk}").content)
    assert found["elapsed_s"] is None or found["elapsed_s"] >= 0


def test_a_worker_hours_off_breaks_no_page(driver: Driver, page: Client) -> None:
    for hours in HOURS_OFF:
        report(driver, hours, driver.run.created_at.timestamp())
    for route, _ in pages():
        if route.startswith("runs/<str:pk>/") and route.count("<") == 1:
            response = page.get("/" + fill(route, {"runs": driver.run.pk}))
            assert response.status_code < 500, route
