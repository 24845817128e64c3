"""A backtest of a reward scheme on ten thousand stored trajectories, as a person asks for it."""

import time
from typing import Any

import httpx

from bench.figures import Figure
from bench.ui._place import Place
from workers.local.places import UserError

LIMIT_S = 300
SCHEME = {
    "name": "bench",
    # One term over the text of the transcripts.
    "terms": [
        {"kind": "exact_answer", "weight": 1.0},
        {"kind": "repetition", "weight": -0.5, "ngram": 3},
    ],
}


def backtest(place: Place) -> list[Figure]:
    body = {"definition": SCHEME, "runs": [place.run_named("trajectories")]}
    with place.http as http:
        cancelled = _cancelled(http, body)
        began = time.perf_counter()
        job = _asked(http, body)
        seen = set[int]()
        while job["ended_at"] is None:
            if time.perf_counter() - began > LIMIT_S:
                raise UserError(f"The backtest has not ended within {LIMIT_S} s.")
            time.sleep(0.1)
            job = http.get(f"/api/v1/jobs/{job['id']}").raise_for_status().json()
            seen.add(job["done"])
        seconds = time.perf_counter() - began
    if job["state"] != "succeeded":
        raise UserError(f"The backtest {job['state']}: {job['state_reason']}")
    setup = (
        f"{job['done']:,} trajectories, from the call to its result; {len(seen)} steps of progress "
        f"seen; another one was cancelled {cancelled:.1f} s after it was asked to stop"
    )
    return [Figure("ui", "backtest_10k_s", seconds, "s", "at most 30", setup=setup)]


def _asked(http: httpx.Client, body: dict[str, Any]) -> Any:
    return http.post("/api/v1/backtests", json=body).raise_for_status().json()


def _cancelled(http: httpx.Client, body: dict[str, Any]) -> float:
    """Seconds from the wish to stop to the end of a backtest that is at work."""
    job = _asked(http, body)
    deadline = time.monotonic() + LIMIT_S
    while not job["done"]:
        if job["ended_at"] is not None or time.monotonic() > deadline:
            raise UserError(f"The backtest did not begin to count: it is {job['state']}.")
        time.sleep(0.05)
        job = http.get(f"/api/v1/jobs/{job['id']}").raise_for_status().json()
    began = time.perf_counter()
    job = http.post(f"/api/v1/jobs/{job['id']}/cancel").raise_for_status().json()
    while job["ended_at"] is None:
        if time.monotonic() > deadline:
            raise UserError("The backtest did not end after it was asked to stop.")
        time.sleep(0.05)
        job = http.get(f"/api/v1/jobs/{job['id']}").raise_for_status().json()
    return time.perf_counter() - began
