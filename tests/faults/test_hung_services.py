"""The whole stack under its supervisor: every service that hangs is started again."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from workers.local import watchdog
from workers.local.processes import SERVICES
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack
from workers.local.state import started_by

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def stack(said: list[str]) -> Iterator[Stack]:
    """A stack with somebody who watches over it, impatiently."""
    with pytest.MonkeyPatch.context() as patch, scratch_stack(say=said.append) as stack:
        patch.setattr(watchdog, "EVERY_S", 0.5)
        patch.setattr(watchdog, "PATIENCE_S", 3.0)
        patch.setattr(watchdog, "MOST_SILENT", 5)
        patch.setattr("workers.alive.FRESH_S", 10.0)
        watching = threading.Thread(target=stack.supervisor.watch)
        watching.start()
        yield stack
        stack.supervisor.ask_to_stop()
        watching.join()


def until(condition: Callable[[], Any], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def halt(stack: Stack, name: str) -> psutil.Process:
    """Stop the process that answers for a service, which lives on and hangs."""
    process = stack.supervisor.children[name].process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    return process


@pytest.mark.parametrize("names", [SERVICES[3:], SERVICES[:2]], ids=str)
def test_services_that_hang_are_started_again(
    stack: Stack, said: list[str], names: tuple[str, ...]
) -> None:
    children = stack.supervisor.children
    until(lambda: all(child.ready for child in children.values()), 120, "everything is up")
    said.clear()
    halted = {name: halt(stack, name) for name in names}

    def again() -> bool:
        return all(
            children[name].ready and not process.is_running() for name, process in halted.items()
        )

    until(again, 180, f"{', '.join(names)} answer again")
    for name in names:
        assert any(line.startswith(f"{name} died (hangs:") for line in said), said


def test_ray_that_hangs_is_told_of_and_left_to_its_runs(stack: Stack, said: list[str]) -> None:
    head = stack.supervisor.children["ray-head"]
    until(lambda: head.ready, 120, "Ray is up")
    before, process = head.process, _api_of_ray(stack)
    said.clear()
    os.kill(process.pid, signal.SIGSTOP)
    try:
        until(lambda: any(line.startswith("ray-head hangs:") for line in said), 120, "it is told")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert head.ready and head.process is before
    until(lambda: head.silent == 0, 120, "Ray answers")


def _api_of_ray(stack: Stack) -> psutil.Process:
    """The process that serves Ray's job API, one of several of the head."""
    ours = [found for found, _ in started_by(stack.supervisor.state.instance)]
    return next(found for found in ours if "dashboard.py" in " ".join(found.cmdline()))
