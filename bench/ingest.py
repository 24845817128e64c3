"""Points a second that a server stores over HTTP, beside MLflow's tracking server.

Both servers are real processes on this machine, written to in turns by one client, in batches of
1,000 points (20 metrics at 50 steps). Ours stands on PostgreSQL with synchronous_commit on, MLflow
on its default, SQLite. Calls are timed until the last one was answered; what is in the databases
then is counted.
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import zstandard

from bench import _peers
from bench.figures import Figure, Options
from caravan import Client
from workers.local.places import UserError
from workers.local.ports import free_port
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack

MLFLOW = "mlflow==3.17.2"
SERVICES = ("postgres", "valkey", "web", "ingest")
STEPS, METRICS = 50, 20
BATCH = STEPS * METRICS
ROUNDS = 5
OUR_BATCHES, PEER_BATCHES = 100, 10  # of one round; the first round warms up and is not timed
TRIES = 5
START_S = 120
NAMES = [f"train/metric_{number:02}" for number in range(METRICS)]


@dataclass
class Server:
    """Where batches go, what they look like, and how many points are stored."""

    url: str
    headers: dict[str, str]
    body: Callable[[int], bytes]  # of the batch with this number
    stored: Callable[[], int]
    batches: int  # of one round
    seconds: float = 0.0
    sent: int = 0  # points
    repeated: int = 0  # batches whose answer was lost


def run(options: Options) -> list[Figure]:
    programs = _peers.environment(MLFLOW)
    with (
        tempfile.TemporaryDirectory(prefix="caravan-bench-") as folder,
        scratch_stack(SERVICES, durable=True) as stack,
        _mlflow(programs, Path(folder)) as peer_url,
        psycopg.connect(stack.layout.database_url, autocommit=True) as database,
    ):
        ours = _ours(stack, database)
        peer = _peer(peer_url, Path(folder))
        for number in range(ROUNDS + 1):
            for server in (ours, peer):
                seconds = _round(server, number)
                server.seconds += seconds if number else 0.0
        missing = [server.sent - server.stored() for server in (ours, peer)]
        return [_figure(ours, peer, missing, _settings(database))]


def _round(server: Server, number: int) -> float:
    """Send one round's batches; seconds until the last was answered."""
    first = number * server.batches
    bodies = [server.body(batch) for batch in range(first, first + server.batches)]
    with httpx.Client(timeout=60, trust_env=False, headers=server.headers) as http:
        began = time.perf_counter()
        for body in bodies:
            _store(http, server, body)
        seconds = time.perf_counter() - began
    server.sent += server.batches * BATCH
    return seconds


def _store(http: httpx.Client, server: Server, body: bytes) -> None:
    """Send one batch; again where the answer was lost, which stores it once with both servers."""
    for left in reversed(range(TRIES)):
        try:
            http.post(server.url, content=body).raise_for_status()
            return
        except httpx.TransportError:  # MLflow's parent process ends workers that are too busy
            if not left:
                raise
            server.repeated += 1


def _figure(ours: Server, peer: Server, missing: list[int], settings: str) -> Figure:
    rates = [ROUNDS * server.batches * BATCH / server.seconds for server in (ours, peer)]
    setup = (
        f"ours {rates[0]:,.0f} points/s on {settings}; {MLFLOW} {rates[1]:,.0f} on SQLite; "
        f"{ROUNDS} rounds in turns, batches of {BATCH:,}, one client, {os.cpu_count()} cores"
    )
    if ours.repeated or peer.repeated:
        setup += f"; answers lost: {ours.repeated} of ours, {peer.repeated} of its"
    if any(missing):
        setup = f"points that were answered and are not stored: {missing[0]} ours, {missing[1]} its"
    ratio = None if any(missing) else rates[0] / rates[1]
    return Figure(
        bench="ingest",
        metric="points_per_second_ratio",
        value=ratio,
        unit="times",
        bar="at least 10",
        peer=MLFLOW,
        ratio=ratio,
        setup=setup,
    )


def _points(batch: int) -> Iterator[tuple[int, dict[str, float]]]:
    chance = random.Random(batch)
    for step in range(batch * STEPS, (batch + 1) * STEPS):
        yield step, {name: chance.gauss(0.0, 1.0) for name in NAMES}


def _ours(stack: Stack, database: Any) -> Server:
    """An external run of our own stack; batches look as the client's shipper sends them."""
    access = json.loads(stack.places.secret("cli_token.json").read_text())
    with Client(access["url"], access["token"]) as client:
        begun = client.begin_external(experiment="bench", config={})
    headers = {
        "Authorization": f"Bearer {begun['token']}",
        "Content-Type": "application/json",
        "Content-Encoding": "zstd",
    }

    def body(batch: int) -> bytes:
        items = [
            {
                "kind": "metrics",
                "source": "bench",
                "seq": step + 1,
                "at": time.time(),
                "step": step,
                "values": values,
            }
            for step, values in _points(batch)
        ]
        return zstandard.ZstdCompressor(level=3).compress(json.dumps({"items": items}).encode())

    def stored() -> int:
        row = database.execute(
            "SELECT count(*) FROM monitoring_point AS point "
            "JOIN monitoring_series AS series ON series.id = point.series_id "
            "WHERE series.run_id = %s",
            [begun["run_id"]],
        ).fetchone()
        return int(row[0])

    url = f"{begun['ingest_url']}/ingest/v1/events"
    return Server(url, headers, body, stored, OUR_BATCHES)


def _settings(database: Any) -> str:
    def value(name: str) -> str:
        return str(database.execute(f"SHOW {name}").fetchone()[0])

    version = value("server_version").split()[0]
    shown = ", ".join(f"{name} {value(name)}" for name in ("synchronous_commit", "fsync"))
    return f"PostgreSQL {version} ({shown})"


def _peer(url: str, folder: Path) -> Server:
    api = f"{url}/api/2.0/mlflow"
    made = httpx.post(
        f"{api}/runs/create", json={"experiment_id": "0"}, timeout=60, trust_env=False
    )
    run_id = made.raise_for_status().json()["run"]["info"]["run_id"]

    def body(batch: int) -> bytes:
        now = int(time.time() * 1000)
        metrics = [
            {"key": name, "value": value, "timestamp": now, "step": step}
            for step, values in _points(batch)
            for name, value in values.items()
        ]
        return json.dumps({"run_id": run_id, "metrics": metrics}).encode()

    def stored() -> int:
        with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:
            return int(database.execute("SELECT count(*) FROM metrics").fetchone()[0])

    headers = {"Content-Type": "application/json"}
    return Server(f"{api}/runs/log-batch", headers, body, stored, PEER_BATCHES)


@contextlib.contextmanager
def _mlflow(programs: Path, folder: Path) -> Iterator[str]:
    """MLflow's tracking server with its default store; yields its address."""
    port = free_port(set())
    url = f"http://127.0.0.1:{port}"
    command = [
        str(programs / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port),
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--default-artifact-root", str(folder / "artifacts"),
    ]  # fmt: skip
    kept = ("HOME", "LANG", "TMPDIR", "SSL_CERT_FILE")
    surroundings = {key: os.environ[key] for key in kept if key in os.environ}
    surroundings["PATH"] = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
    log = folder / "mlflow.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env=surroundings,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _await(url, server, log)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _await(url: str, server: Any, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success:
                return
        time.sleep(0.2)
    last = (log.read_text().strip() or "no output").splitlines()[-1]
    raise UserError(f"{MLFLOW} does not answer after {START_S} s: {last}")
