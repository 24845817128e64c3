"""Jobs in the process that `up` starts for them: done, also after one was killed."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from caravan.client import Client
from tests.client.conftest import command
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack, manage

pytestmark = pytest.mark.stack
SERVICES = ("postgres", "valkey", "web", "ingest", "worker", "beat", "jobs")
LIMIT_S = 90


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with scratch_stack(SERVICES) as stack:
        manage(stack, ["seed_demo", "--runs", "1"])
        yield stack


def until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def test_a_backtest_runs_there_to_its_end(client: Client, tmp_path: Path) -> None:
    run = client.runs()[0]["id"]
    file = tmp_path / "tried.yaml"
    file.write_text("name: tried\nterms: [{kind: repetition, weight: -1.0, ngram: 2}]\n")
    done = command("rewards", "backtest", str(file), "--run", run, "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert result["trajectories"] > 10 and result["unread"] == {}


def test_a_large_export_is_made_there_and_fetched(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = client.runs()[0]["id"]
    sent, made, copy = (tmp_path / name for name in ("sent", "made", "copy"))
    assert command("trajectories", "export", run, "--to", str(sent)).exit_code == 0
    monkeypatch.setattr(Client, "export_extent", lambda *_, **__: {"needs_job": True})
    asked = ("trajectories", "export", run, "--to", str(made), "--json")
    done = command(*asked)
    assert done.exit_code == 0, done.stderr
    assert made.read_bytes() == sent.read_bytes()
    assert json.loads(done.stdout)["trajectories"] == len(sent.read_bytes().splitlines())
    assert command(*asked).exit_code == 2  # the name is taken
    job = client.jobs(kind="export")[0]["id"]
    assert command("jobs", "download", job, "--to", str(copy)).exit_code == 0
    assert copy.read_bytes() == sent.read_bytes()


def test_a_job_is_done_although_the_process_that_would_take_it_is_killed(
    client: Client, stack: Stack
) -> None:
    process = stack.supervisor.children["jobs"].process
    assert process is not None
    children = process.children()
    assert children
    for child in children:  # whichever takes the job stands still, as if it hung
        os.kill(child.pid, signal.SIGSTOP)
    run = client.runs()[0]["id"]
    definition = {"name": "tried", "terms": [{"kind": "exact_answer"}]}
    job = client.backtest(definition=definition, runs=[run])
    assert client.job(job["id"])["state"] == "queued"
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
    assert until(lambda: client.job(job["id"])["state"] == "succeeded")
    assert set(process.children()).isdisjoint(children)
    assert psutil.pid_exists(process.pid)
