"""A run's driver as a real Ray job, reporting to a test server; what tests look at."""

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from engine.spec import load_spec
from tests.engine.telemetry.ingest_server import IngestServer

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
LAUNCHED_WITH = "0123456789abcdef"

# An untrained model seldom answers; rewarding short episodes gives every group some variance.
SPEC = """
name: tiny
seed: 3
environment:
  graph: {cities: 50, held_out: 0.3}
  max_calls: 2
  max_turn_tokens: 12
  max_tokens: 80
reward:
  name: short
  terms: [{kind: exact_answer}, {kind: length, weight: 0.5}]
model: {width: 32, heads: 2, layers: [lightning, softmax], mlp_width: 64, vocab_size: 400}
stages:
  - {kind: synthesise, tasks: {"1": 60}, demonstrations: {"1": 120}}
  - kind: sft
    steps: 6
    batch_size: 8
    optimizer: {kind: muon, lr: 0.002, warmup_steps: 1}
  - kind: rl
    hops: [1]
    prompts_per_step: 3
    group_size: 4
    steps: RL_STEPS
    optimizer: {warmup_steps: 1}
rollout: {slots: 16}
pool: {capacity: 12, max_staleness: 2}
checkpoint: {every_steps: 2}
evaluation: {tasks: 12, hops: [1], quick_tasks: 10, every_steps: 2}
"""


def spec(rl_steps: int = 5) -> dict[str, Any]:
    found, problems = load_spec(SPEC.replace("RL_STEPS", str(rl_steps)))
    assert found is not None, problems
    return found.model_dump(mode="json")


def series(ingest: IngestServer, name: str) -> dict[int, float]:
    """What was reported of a metric, by step."""
    return {e["step"]: e["values"][name] for e in ingest.of_kind("metrics") if name in e["values"]}


@dataclass
class Cluster:
    """Ray's job API."""

    url: str
    token: str
    started: list[str] = field(default_factory=list)

    def stop_all(self) -> None:
        """Stop the jobs that still run, as a failed test leaves them."""
        for job in self.started:
            if self.call("GET", job)["status"] not in ENDED:
                self.call("POST", f"{job}/stop")
        self.started.clear()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.request(
            method, f"{self.url}/api/jobs/{path}", json=body, headers=headers, timeout=60
        )
        assert answer.is_success, answer.text
        return answer.json()


class Job:
    """One attempt of a run, submitted to Ray."""

    def __init__(
        self,
        cluster: Cluster,
        ingest: IngestServer,
        folder: Path,
        spec: dict[str, Any],
        number: int = 1,
        environment: dict[str, str] | None = None,
        scheme: str = "",
        origin: dict[str, Any] | None = None,
        dry_run: bool = False,
    ) -> None:
        """`folder` gets the run's `storage` and `spool`; `scheme`: with "local://" the storage is
        used as an object store would be; `origin`: the checkpoint of another run to start from."""
        self.cluster, self.ingest = cluster, ingest
        self.attempt = f"att_{folder.name}_{number}"
        ingest.redeems = {
            "token": ingest.token,
            "run_id": f"run_{folder.name}",
            "attempt_id": self.attempt,
            "attempt_number": number,
            "spec": spec,
            "dry_run": dry_run,
            "code_version": LAUNCHED_WITH,
            "resume": None,
            "origin": origin,
            "storage": f"{scheme}{folder}/storage",
            "heartbeat_s": 1,
        }
        variables = {
            "CARAVAN_CODE_VERSION": LAUNCHED_WITH,
            "CARAVAN_SPOOL": f"{folder}/spool",
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        }
        driver = "python -m workers.cluster.driver"
        body = {
            "submission_id": f"{self.attempt}-{time.time_ns()}",
            "entrypoint": f"{driver} --ingest {ingest.url} --attempt {self.attempt} --ticket once",
            "runtime_env": {"env_vars": variables},
        }
        self.id: str = cluster.call("POST", "", body)["submission_id"]
        cluster.started.append(self.id)

    @property
    def status(self) -> str:
        return str(self.cluster.call("GET", self.id)["status"])

    def log(self) -> str:
        return str(self.cluster.call("GET", f"{self.id}/logs")["logs"])

    def end(self, timeout_s: float = 180.0) -> dict[str, Any]:
        """The driver's last word, once its process has ended."""
        deadline = time.monotonic() + timeout_s
        while (status := self.status) not in ENDED:
            assert time.monotonic() < deadline, f"{status} after {timeout_s} s:\n{self.log()}"
            time.sleep(0.2)
        words = [body for path, body in self.ingest.calls if path == "finish"]
        assert len(words) <= 1
        return words[0] if words else {}

    def until(self, condition: Callable[[], Any], timeout_s: float = 120.0) -> None:
        try:
            self.ingest.until(condition, timeout_s)
        except AssertionError:
            raise AssertionError(f"it did not happen in time:\n{self.log()}") from None

    def processes(self, name: str) -> list[psutil.Process]:
        """The driver's or an actor's processes: `RolloutActor`, `TrainerActor`, `PoolActor`.

        Of this Ray alone, whose processes carry its jobs' ids in no readable place: the attempt's
        driver is known by its command line, actors by being children of the same raylet.
        """
        if name == "driver":
            return [p for p in _processes() if self.attempt in p.info["cmdline"]]
        (driver, *_) = self.processes("driver")
        session = _session_of(driver)
        wanted = re.compile(rf"ray::{name}\b")
        return [
            p
            for p in _processes()
            if wanted.match(" ".join(p.info["cmdline"])) and _session_of(p) == session
        ]

    def kill(self, name: str) -> None:
        found = self.processes(name)
        assert found, f"no process of {name}"
        for process in found:
            os.kill(process.pid, signal.SIGKILL)


def _processes() -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"]]


def _session_of(process: psutil.Process) -> str:
    """The folder of the Ray that a process belongs to."""
    try:
        environment = process.environ()
    except psutil.Error:
        return ""
    return environment.get("CARAVAN_HOME", "")
