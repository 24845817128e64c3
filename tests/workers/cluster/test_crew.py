"""How the driver waits: never without a limit, never past a death, never past its own end."""

import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._raylet import AuthenticationTokenLoader, Config

from engine.spec import load_spec
from engine.telemetry.connection import Connection
from tests.workers.cluster.running import SPEC
from workers.cluster.control import Control
from workers.cluster.crew import Crew, LimitError, RevokedAttemptError, TerminatedError
from workers.cluster.pool_actor import Released
from workers.cluster.reporting import Address
from workers.cluster.seats import Seats, _Seat

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module", autouse=True)
def own_ray() -> Iterator[None]:
    """A Ray of this process alone, in a folder of its own."""
    folder = tempfile.mkdtemp(prefix="caravan-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        _reread_environment()
        ray.init(
            address="local",
            num_cpus=1,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=80 * 2**20,
            _temp_dir=folder,
        )
        yield
        ray.shutdown()
    _reread_environment()
    shutil.rmtree(folder, ignore_errors=True)


def _reread_environment() -> None:
    """Ray read it when it was imported."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


@pytest.fixture
def control() -> Control:
    return Control(Connection("http://127.0.0.1:9"))


@pytest.fixture
def crew(control: Control) -> Crew:
    spec, _ = load_spec(SPEC.replace("RL_STEPS", "1"))
    assert spec is not None
    reporter: Any = SimpleNamespace(log=None)
    return Crew(spec, 1, Address("http://127.0.0.1:9", "t", "run_x", "att_x"), control, reporter)


def after(seconds: float, value: object) -> object:
    time.sleep(seconds)
    if isinstance(value, Exception):
        raise value
    return value


def call(seconds: float, value: object = None) -> object:
    return ray.remote(num_cpus=0)(after).remote(seconds, value)


def test_results_come_in_the_order_of_the_calls(crew: Crew) -> None:
    assert crew.wait([call(0.3, "a"), call(0.0, "b")], 60, "both") == ["a", "b"]


def test_a_wait_ends_at_its_limit_and_names_what_was_waited_for(crew: Crew) -> None:
    with pytest.raises(LimitError, match="Waited 1 s for the slow one: that is the limit"):
        crew.wait([call(60)], 1, "the slow one")


def test_what_one_of_several_raises_is_raised_at_once(crew: Crew) -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match="broken"):
        crew.wait([call(60), call(0, ValueError("broken"))], 50, "both")
    assert time.monotonic() - started < 20


def test_what_a_rollout_worker_raises_ends_every_wait(crew: Crew) -> None:
    crew.seats._seats = [_Seat(0, loop=call(0.5, ValueError("its loop is broken")))]
    with pytest.raises(ValueError, match="its loop is broken"):
        crew.wait([call(60)], 50, "something else")
    crew.seats._seats = [_Seat(1, loop=call(0.0))]
    with pytest.raises(RuntimeError, match="rollout-1 ended although the run goes on"):
        crew.wait([call(60)], 50, "something else")


class Worker:
    """A rollout worker of which one life cannot play its part."""

    def __init__(self, index: int, life: int) -> None:
        self._me = (index, life)

    def load(self, storage: str) -> None:
        pass

    def run(self) -> None:
        time.sleep(600)

    def evaluate(self, part: int) -> tuple[int, int]:
        if self._me == (1, 1):
            os._exit(3)
        return self._me


class Pool:
    def release(self, worker: str) -> Released:
        return Released({7: 1} if worker == "rollout-1.1" else {}, 0)


def test_a_rollout_worker_that_dies_ends_no_wait_and_another_plays_its_part(crew: Crew) -> None:
    said: list[str] = []
    place: Any = ray.remote(num_cpus=0, max_concurrency=4)(Worker)
    pool: Any = ray.remote(num_cpus=0)(Pool)
    crew.seats = Seats(place.remote, lambda text, level: said.append(f"{level}: {text}"))
    crew.seats.open(2, "storage", pool.remote())
    asked = crew.seats.ask("evaluate", lambda part, parts: (part,))
    assert crew.gather(asked, 120, "their parts") == [(0, 1), (1, 2)]
    assert said[0].startswith("warning: rollout-1 died and is replaced: Ray says: ")
    assert said[0].endswith("The groups of tickets 7 are given again.")
    assert said[1].startswith("info: Another rollout-1 is at work")


def test_a_wish_ends_the_wait_that_allows_it(crew: Crew, control: Control) -> None:
    threading.Timer(0.5, lambda: setattr(control, "command", "stop")).start()
    assert crew.wait([call(60)], 50, "x", until=lambda: control.wants_end) is None


def test_who_is_revoked_or_terminated_waits_for_nothing(crew: Crew, control: Control) -> None:
    control.terminate()
    with pytest.raises(TerminatedError):
        crew.check()
    control.revoke("attempt 2 runs")
    with pytest.raises(RevokedAttemptError, match="attempt 2 runs"):
        crew.wait([call(60)], 50, "x")
