"""How the driver waits: never without a limit, never past a death, never past its own end."""

import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest
import ray
from ray._raylet import AuthenticationTokenLoader, Config

from engine.spec import load_spec
from engine.telemetry.connection import Connection
from tests.workers.cluster.running import SPEC
from workers.cluster.control import Control
from workers.cluster.crew import Crew, LimitError, RevokedAttemptError, TerminatedError
from workers.cluster.reporting import Address

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
    return Crew(spec, 1, Address("http://127.0.0.1:9", "t", "run_x", "att_x"), control)


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


def test_the_death_of_an_actor_ends_every_wait(crew: Crew) -> None:
    crew._running = {call(0.5, ValueError("its loop is broken")): "rollout-0"}
    with pytest.raises(ValueError, match="its loop is broken"):
        crew.wait([call(60)], 50, "something else")
    crew._running = {call(0.0): "rollout-1"}
    with pytest.raises(RuntimeError, match="rollout-1 ended although the run goes on"):
        crew.wait([call(60)], 50, "something else")


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
