"""A real server for the client: its own stores, web and ingest processes, and the command line."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from caravan.client import Client
from caravan.commands import app
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack

SERVICES = ("postgres", "valkey", "web", "ingest")
Caravan = Callable[..., Result]


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    with scratch_stack(SERVICES) as stack:
        yield stack


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No login, no spool and no folder but the test's own."""
    for name in ("CARAVAN_URL", "CARAVAN_TOKEN", "CARAVAN_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CARAVAN_SPOOL", str(tmp_path / "spool"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def at_home(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout's own token."""
    monkeypatch.setenv("CARAVAN_HOME", str(stack.places.home))


@pytest.fixture
def client(at_home: None) -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture
def caravan(at_home: None) -> Caravan:
    return command


def command(*arguments: str, text: str = "") -> Result:
    """Run the command line; a bug shows its traceback."""
    result = CliRunner().invoke(app, list(arguments), input=text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def as_json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@contextlib.contextmanager
def outage(stack: Stack) -> Iterator[None]:
    """Ingest is down for the time of the block."""
    child = stack.supervisor.children["ingest"]
    assert child.process is not None and child.popen is not None
    child.process.kill()
    child.popen.wait()
    child.process, child.ready = None, False
    try:
        yield
    finally:
        stack.supervisor.start(["ingest"])
