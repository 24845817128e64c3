"""Small services that are real processes: a supervisor over them, and a place for them."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers.local.places import Places, prepare
from workers.local.probes import Probe
from workers.local.processes import Service
from workers.local.state import read_state
from workers.local.supervisor import Supervisor

SLEEPER = "import sys, time; print('ready', flush=True); time.sleep(600)"


def service(name: str, script: str = SLEEPER, depends_on: tuple[str, ...] = ()) -> Service:
    return Service(
        name,
        (sys.executable, "-c", script),
        {},
        Probe("log", "ready"),
        depends_on,
        stop_seconds=1.0,
    )


@pytest.fixture
def places(tmp_path: Path) -> Places:
    found = Places(tmp_path / "home", tmp_path / "run")
    prepare(found)
    return found


@pytest.fixture
def supervise(places: Places) -> Iterator[Callable[..., Supervisor]]:
    """Makes supervisors over the same home; what they started is stopped at the end."""
    made: list[Supervisor] = []

    def make(*services: Service, say: Callable[[str], None] = lambda line: None) -> Supervisor:
        state = read_state(places)
        state.instance = state.instance or f"test-{places.home}"
        supervisor = Supervisor(places, services, state, say)
        made.append(supervisor)
        return supervisor

    yield make
    for supervisor in reversed(made):
        supervisor.stop()
