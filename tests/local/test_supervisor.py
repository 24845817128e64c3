"""The supervisor, over real processes."""

import os
import signal
import sys
from collections.abc import Callable

import psutil
import pytest

from tests.local.conftest import service
from workers.local.places import Places, UserError
from workers.local.state import read_state
from workers.local.supervisor import StartInterruptedError, Supervisor

Make = Callable[..., Supervisor]


def pid(supervisor: Supervisor, name: str) -> int:
    process = supervisor.children[name].process
    assert process is not None
    return int(process.pid)


def test_it_starts_a_service_after_those_it_depends_on(supervise: Make) -> None:
    said: list[str] = []
    supervisor = supervise(
        service("late", depends_on=("early",)), service("early"), say=said.append
    )
    supervisor.start(["late", "early"])
    assert [line.split()[0] for line in said] == ["early", "late"]


def test_it_says_the_last_words_of_a_service_that_ends_at_once(supervise: Make) -> None:
    supervisor = supervise(service("broken", "print('no such table'); raise SystemExit(3)"))
    with pytest.raises(UserError, match=r"broken ended at once \(exit code 3\).*no such table"):
        supervisor.start(["broken"])


def test_it_does_not_go_on_starting_once_it_was_asked_to_stop(supervise: Make) -> None:
    supervisor = supervise(service("slow", "import time; time.sleep(600)"))
    supervisor.ask_to_stop()
    with pytest.raises(StartInterruptedError):
        supervisor.start(["slow"])


def test_it_restarts_a_service_that_was_killed(supervise: Make) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "up again" in line:
            supervisor.ask_to_stop()

    supervisor = supervise(service("victim"), say=say)
    supervisor.start(["victim"])
    first = pid(supervisor, "victim")
    os.kill(first, signal.SIGKILL)
    supervisor.watch()
    assert pid(supervisor, "victim") != first
    assert any("died (signal 9), next start in 0.5 s" in line for line in said)


def test_it_waits_longer_before_each_further_start(supervise: Make) -> None:
    delays: list[str] = []

    def say(line: str) -> None:
        if "next start in" in line:
            delays.append(line.split("next start in ")[1].split(" s")[0])
            if len(delays) == 2:
                supervisor.ask_to_stop()

    script = "print('ready', flush=True)"
    supervisor = supervise(service("mayfly", f"{script}; import time; time.sleep(0.3)"), say=say)
    supervisor.start(["mayfly"])
    supervisor.watch()
    assert delays == ["0.5", "1.0"]


def test_it_ends_what_a_dead_service_left_behind(supervise: Make) -> None:
    spawning = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True);"
        "print('child', p.pid, flush=True); print('ready', flush=True); time.sleep(600)"
    )
    supervisor = supervise(
        service("parent", spawning),
        say=lambda line: supervisor.ask_to_stop() if "up again" in line else None,
    )
    supervisor.start(["parent"])
    log = supervisor.log_path("parent").read_text()
    child = psutil.Process(int(log.split("child ")[1].split()[0]))
    os.kill(pid(supervisor, "parent"), signal.SIGKILL)
    supervisor.watch()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_it_stops_in_reverse_order_and_kills_what_does_not_listen(supervise: Make) -> None:
    said: list[str] = []
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('ready', flush=True); time.sleep(600)"
    )
    supervisor = supervise(
        service("store"), service("deaf", deaf, depends_on=("store",)), say=said.append
    )
    supervisor.start(["store", "deaf"])
    said.clear()
    supervisor.stop()
    assert [line.split()[0] for line in said] == ["deaf", "store"]
    assert "was killed" in said[0]
    assert read_state(supervisor.places).services == {}


def test_it_keeps_a_healthy_orphan(supervise: Make) -> None:
    killed = supervise(service("steady"))
    killed.start(["steady"])
    orphan = pid(killed, "steady")
    following = supervise(service("steady"))
    following.adopt_or_end_orphans()
    following.start(["steady"])
    assert pid(following, "steady") == orphan


def test_it_restarts_an_adopted_service_that_dies(supervise: Make) -> None:
    killed = supervise(service("steady"))
    killed.start(["steady"])
    following = supervise(
        service("steady"),
        say=lambda line: following.ask_to_stop() if "up again" in line else None,
    )
    following.adopt_or_end_orphans()
    orphan = pid(following, "steady")
    os.kill(orphan, signal.SIGKILL)
    killed.children["steady"].popen.wait()  # type: ignore[union-attr]
    following.watch()
    assert pid(following, "steady") != orphan


def test_it_ends_an_orphan_that_would_be_started_differently_now(supervise: Make) -> None:
    killed = supervise(service("changed"))
    killed.start(["changed"])
    orphan = pid(killed, "changed")
    following = supervise(service("changed", "print('ready', flush=True); input()"))
    following.adopt_or_end_orphans()
    killed.children["changed"].popen.wait()  # type: ignore[union-attr]
    assert not psutil.pid_exists(orphan)
    assert following.children["changed"].process is None


def test_it_leaves_a_stranger_with_a_recorded_process_id_alone(
    supervise: Make, places: Places
) -> None:
    killed = supervise(service("gone"))
    killed.start(["gone"])
    recorded = killed.state.services["gone"]
    killed.stop()
    stranger = psutil.Popen([sys.executable, "-c", "input()"], stdin=-1)
    try:
        following = supervise(service("gone"))
        following.state.services["gone"] = type(recorded)(
            stranger.pid, recorded.created, recorded.argv, recorded.fingerprint
        )
        following.adopt_or_end_orphans()
        assert stranger.is_running()
        assert following.children["gone"].process is None
    finally:
        stranger.kill()
        stranger.wait()
