"""The whole of `up`, detached, on its own folder: as a person would start, look at and stop it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from workers.local.places import PYTHON_PATH
from workers.local.processes import SERVICES
from workers.local.state import Recorded, started_by

pytestmark = pytest.mark.stack


class Terminal:
    """Types commands for one home folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.shown = ""  # by `up --detach`

    def caravan(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "CARAVAN_HOME": str(self.home), "PYTHONPATH": PYTHON_PATH}
        return subprocess.run(
            [sys.executable, "-P", "-m", "cli", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def status(self) -> dict[str, int]:
        found = json.loads(self.caravan("status", "--json").stdout)
        return {line["service"]: line["pid"] for line in found["services"]}

    def state(self) -> dict[str, object]:
        loaded: dict[str, object] = json.loads((self.home / "up.json").read_text())
        return loaded


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    folder = Path(tempfile.mkdtemp(prefix="caravan-test-", dir="/tmp"))
    folder.chmod(0o711)
    typed = Terminal(folder / "home")
    started = typed.caravan("up", "--detach", "--no-demo")
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        typed.shown = started.stdout
        yield typed
    finally:
        typed.caravan("down")
        shutil.rmtree(folder)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def test_it_brings_up_every_service(terminal: Terminal) -> None:
    assert sorted(terminal.status()) == sorted(SERVICES)
    assert all(terminal.status().values())
    assert terminal.caravan("status").returncode == 0


def test_detached_it_shows_all_that_it_says_at_the_start(terminal: Terminal) -> None:
    welcome = (terminal.home / "logs/up.log").read_text().partition("\nCaravan is up:")[2]
    assert "Log in once with" in welcome
    assert "`./caravan login-link` makes another link." in welcome
    assert "Ctrl-C" not in welcome  # it has no terminal
    assert welcome.partition("\n\n")[0] in terminal.shown
    assert "It runs in the background" in terminal.shown.splitlines()[-1]


def test_it_serves_pages_on_loopback_and_prints_a_login_link(terminal: Terminal) -> None:
    log = (terminal.home / "logs/up.log").read_text()
    url = str(terminal.state()["url"])
    assert url.startswith("http://127.0.0.1:")
    assert f"Log in once with {url}/" in log
    with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
        assert answer.status == 200
    link = terminal.caravan("login-link")
    assert link.returncode == 0
    assert link.stdout.startswith(url)


def test_it_listens_on_loopback_alone(terminal: Terminal) -> None:
    ours = {process.pid for process, _ in started_by(str(terminal.state()["instance"]))}
    listening = {
        connection.laddr.ip
        for connection in psutil.net_connections("tcp")
        if connection.pid in ours and connection.status == psutil.CONN_LISTEN
    }
    assert listening
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_its_ray_refuses_whoever_has_no_token(terminal: Terminal) -> None:
    ports = terminal.state()["ports"]
    assert isinstance(ports, dict)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{ports['ray-jobs']}/api/jobs/", timeout=5)
    assert refused.value.code in (401, 403)


def test_it_stores_a_private_token_for_this_checkout(terminal: Terminal) -> None:
    token = terminal.home / "secrets/cli_token.json"
    assert token.stat().st_mode & 0o077 == 0
    assert sorted(json.loads(token.read_text())) == ["token", "url"]


def test_it_restarts_services_that_are_killed(terminal: Terminal) -> None:
    before = terminal.status()
    victims = ("web", "ingest", "worker", "beat", "valkey", "postgres")
    for name in victims:
        os.kill(before[name], signal.SIGKILL)
    until(lambda: all(terminal.status().get(name) not in (None, before[name]) for name in victims))
    url = str(terminal.state()["url"])
    until(lambda: _answers(f"{url}/healthz"))
    until(lambda: terminal.caravan("login-link").returncode == 0)


def test_a_second_up_takes_over_from_one_that_was_killed(terminal: Terminal) -> None:
    supervisor = terminal.state()["supervisor"]
    assert isinstance(supervisor, dict)
    os.kill(supervisor["pid"], signal.SIGKILL)
    until(lambda: Recorded(**supervisor).find() is None)
    assert terminal.caravan("status").returncode == 3
    again = terminal.caravan("up", "--detach", "--no-demo")
    assert again.returncode == 0, again.stdout + again.stderr
    assert terminal.caravan("status").returncode == 0


def test_it_stops_everything_within_30_seconds(terminal: Terminal) -> None:
    instance = str(terminal.state()["instance"])
    began = time.monotonic()
    assert terminal.caravan("down").stdout == "stopped\n"
    assert time.monotonic() - began < 30
    assert not started_by(instance)
    assert terminal.status() == {}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
