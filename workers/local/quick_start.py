"""Follows the quick-start run over the API and prints one line with its result."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from workers.local.places import Places

POLL_SECONDS = 3.0
ENDED = {"succeeded", "stopped", "failed", "lost"}  # an interrupted run goes on


def follow_quick_start(places: Places, url: str, run_id: str, say: Callable[[str], None]) -> None:
    """Watch the run, if it is the quick start, from a thread that dies with the process.

    `url`: of the pages, from this machine.
    """
    token = json.loads(places.secret("cli_token.json").read_text())["token"]
    threading.Thread(target=_follow, args=(url, token, run_id, say), daemon=True).start()


def _follow(url: str, token: str, run_id: str, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, verify=False) as client:
        while True:
            time.sleep(POLL_SECONDS)
            try:
                answer = client.get(f"/api/v1/runs/{run_id}")
            except httpx.HTTPError:
                continue  # the web process is being started again
            if answer.status_code != 200:
                continue
            if not answer.json()["is_demo"]:
                return
            if answer.json()["state"] in ENDED:
                say(summary_line(answer.json(), time.monotonic() - began))
                return


def summary_line(run: dict[str, Any], seconds: float) -> str:
    """One sentence on how the quick start ended, with what its held-out tasks say."""
    text = f"the quick start {run['state']} after {seconds / 60:.1f} min"
    if run["state"] != "succeeded" and run.get("state_reason"):
        text += f" ({run['state_reason']})"
    judged = [
        one
        for one in run.get("summary", {}).get("evaluations", [])
        if one.get("name") == "held_out" and one.get("completion_rate") is not None
    ]
    if not judged:
        return text
    first, last = judged[0], judged[-1]
    interval = f"{last['completion_rate_low']:.1%} to {last['completion_rate_high']:.1%}"
    rates = f"{first['completion_rate']:.1%} -> {last['completion_rate']:.1%}"
    return f"{text}: {rates} of the held-out tasks solved (95% interval {interval})"
