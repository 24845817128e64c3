"""Services that hang: their process lives and answers nobody."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.local.conftest import service
from workers.alive import FRESH_S, VARIABLE
from workers.local import watchdog
from workers.local.child import Child
from workers.local.ports import free_port
from workers.local.probes import Probe, answers
from workers.local.processes import Service
from workers.local.supervisor import Supervisor
from workers.local.watchdog import Watchdog, is_hung

Make = Callable[..., Supervisor]
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[2])); self.end_headers()
    def log_message(self, *arguments): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
TOUCHING = """
import time
from workers.alive import show_alive
show_alive(); print("ready", flush=True)
while True:
    time.sleep(0.05); show_alive()
"""


def server(name: str, status: int = 200) -> Service:
    port = free_port(set())
    probe = Probe("http", f"http://127.0.0.1:{port}/")
    argv = (sys.executable, "-c", SERVER, str(port), str(status))
    return Service(name, argv, {}, probe, health=probe, stop_seconds=1.0)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "EVERY_S", 0.05)
    monkeypatch.setattr(watchdog, "PATIENCE_S", 0.5)
    monkeypatch.setattr(watchdog, "MOST_SILENT", 3)


@pytest.fixture
def halted() -> Iterator[list[int]]:
    """Ids of processes to let go on at the end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


def pid_of(supervisor: Supervisor, name: str) -> int:
    process = supervisor.children[name].process
    assert process is not None
    return int(process.pid)


def test_it_starts_a_service_again_that_hangs(supervise: Make, halted: list[int]) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "up again" in line:
            supervisor.ask_to_stop()

    supervisor = supervise(server("web"), say=say)
    supervisor.start(["web"])
    first = pid_of(supervisor, "web")
    halted.append(first)
    os.kill(first, signal.SIGSTOP)
    supervisor.watch()
    assert pid_of(supervisor, "web") != first
    assert any("web died (hangs: 3 times in a row it did not answer)" in line for line in said)


def test_it_starts_a_service_without_a_server_again_that_hangs(
    supervise: Make, halted: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.alive.FRESH_S", 0.5)
    file = tmp_path / "alive/beat"
    plain = service("beat", TOUCHING)
    env = {VARIABLE: str(file), "PYTHONPATH": os.pathsep.join(sys.path)}
    beat = Service("beat", plain.argv, env, plain.probe, health=Probe("alive", str(file)))
    supervisor = supervise(
        beat, say=lambda line: supervisor.ask_to_stop() if "up again" in line else None
    )
    supervisor.start(["beat"])
    first = pid_of(supervisor, "beat")
    halted.append(first)
    os.kill(first, signal.SIGSTOP)
    supervisor.watch()
    assert pid_of(supervisor, "beat") != first


def test_an_answer_makes_good_for_all_silence_before(supervise: Make, halted: list[int]) -> None:
    supervisor = supervise(server("web"))
    supervisor.start(["web"])
    child = supervisor.children["web"]
    dog = Watchdog(supervisor.children, threading.Event())
    halted.append(pid_of(supervisor, "web"))
    os.kill(halted[0], signal.SIGSTOP)
    dog.look()
    dog.look()
    assert (child.silent, is_hung(child)) == (2, False)
    os.kill(halted[0], signal.SIGCONT)
    dog.look()
    assert child.silent == 0


def test_a_refusal_is_an_answer(supervise: Make) -> None:
    ill = server("ill", status=503)
    supervisor = supervise(ill)
    supervisor.begin("ill")
    supervisor.children["ill"].ready = True
    assert ill.health is not None
    while not answers(ill.health, 1.0):
        assert supervisor.children["ill"].ended() is None
    Watchdog(supervisor.children, threading.Event()).look()
    assert supervisor.children["ill"].silent == 0


def child_with(health: Probe | None, depends_on: tuple[str, ...] = ()) -> Child:
    plain = service("any", depends_on=depends_on)
    made = Service("any", plain.argv, {}, plain.probe, depends_on, health=health)
    return Child(made, ready=True)


def test_nobody_is_blamed_while_what_it_stands_on_is_silent(tmp_path: Path) -> None:
    nobody = Probe("http", f"http://127.0.0.1:{free_port(set())}/")
    children = {
        "store": child_with(nobody),
        "web": child_with(nobody, ("store",)),
        "page": child_with(nobody, ("web",)),
    }
    dog = Watchdog(children, threading.Event())
    for _ in range(5):
        dog.look()
    assert [child.silent for child in children.values()] == [5, 0, 0]
    children["store"].ready = False  # it is being started again
    dog.look()
    assert children["web"].silent == 0


def test_a_service_that_cannot_be_asked_lives_as_long_as_its_process() -> None:
    children = {"plain": child_with(None)}
    Watchdog(children, threading.Event()).look()
    assert children["plain"].silent == 0


def test_a_file_that_was_touched_long_ago_is_no_answer(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    assert not answers(Probe("alive", str(file)), 1.0)
    file.touch()
    assert answers(Probe("alive", str(file)), 1.0)
    before = file.stat().st_mtime - FRESH_S - 1
    os.utime(file, (before, before))
    assert not answers(Probe("alive", str(file)), 1.0)
