"""The whole stack, and a run whose driver is killed: noticed, said, and resumed without a loss."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from caravan import Client
from engine.pool.wal import FolderStore, Wal
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with scratch_stack() as stack:
        yield stack


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    found = json.loads(stack.places.secret("cli_token.json").read_text())
    with Client(found["url"], found["token"]) as client:
        yield client


def until(condition: Callable[[], Any], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def driver_of(attempt: dict[str, Any]) -> psutil.Process:
    for process in psutil.process_iter(["cmdline"]):
        if attempt["id"] in (process.info["cmdline"] or []):
            return process
    raise AssertionError("the driver does not run")


def test_a_killed_driver_is_noticed_within_30_s_and_its_run_resumes(
    stack: Stack, client: Client
) -> None:
    run_id = client.launch(recipe="smoke")["id"]

    def trained() -> bool:
        found = client.run(run_id)
        assert found["state"] in ("queued", "starting", "running"), found["state_reason"]
        return found["phase"] == "rl" and bool(client.series(run_id, "train/loss"))

    until(trained, 300, "the run trains by reinforcement")
    before = client.run(run_id)
    os.kill(driver_of(before["attempts"][0]).pid, signal.SIGKILL)
    until(lambda: client.run(run_id)["state"] == "lost", 30, "the run is lost")

    client.resume(run_id)

    def ended() -> bool:
        found = client.run(run_id)
        assert found["state"] not in ("failed", "lost"), found["state_reason"]
        return found["state"] == "succeeded"

    until(ended, 300, "the resumed run succeeds")
    after = client.run(run_id)
    assert [attempt["state"] for attempt in after["attempts"]] == ["succeeded", "lost"]
    stage = before["spec"]["stages"][2]
    log = FolderStore(Path(stack.layout.storage) / "runs" / run_id / "pool/stage-2")
    held = Wal(log, epoch=99).recover(stage["steps"])
    assert held.conserves()
    assert held.consumed == stage["steps"] * stage["prompts_per_step"], "each step's groups, once"
