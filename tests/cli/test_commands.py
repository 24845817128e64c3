"""The commands as a person types them: wrong input is one sentence and an exit code."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from workers.local.places import PYTHON_PATH


def caravan(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "CARAVAN_HOME": str(home),
        "PYTHONPATH": PYTHON_PATH,
        "COLUMNS": "100",
    }
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def assert_one_sentence(done: subprocess.CompletedProcess[str], beginning: str) -> None:
    assert done.returncode == 2
    assert done.stderr.startswith(f"caravan: {beginning}")
    assert done.stderr.count("\n") == 1


def test_it_refuses_an_open_address_before_it_starts_anything(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert_one_sentence(caravan(home, "up", "--host", "0.0.0.0"), "--host 0.0.0.0 can be reached")
    assert not home.exists()


def test_it_names_a_taken_port(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = caravan(tmp_path / "home", "up", "--port", str(port))
    assert_one_sentence(done, f"Port {port} on 127.0.0.1 is taken by another program")


def test_it_names_the_services_where_one_is_unknown(tmp_path: Path) -> None:
    done = caravan(tmp_path / "home", "up", "--only", "postgres,mysql")
    assert_one_sentence(done, "There is no service 'mysql': the services are postgres, valkey")


@pytest.mark.parametrize("arguments", [["fly"], ["up", "--port", "http"], ["up", "--port", "0"]])
def test_it_refuses_what_it_does_not_know(tmp_path: Path, arguments: list[str]) -> None:
    done = caravan(tmp_path / "home", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "home").exists()


def test_it_says_that_nothing_runs(tmp_path: Path) -> None:
    done = caravan(tmp_path / "home", "status")
    assert (done.returncode, done.stdout) == (
        3,
        "nothing is running: start it with `./caravan up`\n",
    )
    done = caravan(tmp_path / "home", "status", "--json")
    assert json.loads(done.stdout) == {"url": "", "up": False, "services": []}
    assert caravan(tmp_path / "home", "down").stdout == "nothing was running\n"


def test_it_shows_logs_and_names_those_there_are(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "web.log").write_text("one\ntwo\nthree\n")
    assert caravan(tmp_path, "logs", "web", "-n", "2").stdout == "two\nthree\n"
    assert_one_sentence(
        caravan(tmp_path, "logs", "webb"), "There is no log of 'webb': there are web"
    )
    assert_one_sentence(caravan(tmp_path, "logs", "../secrets/x"), "There is no log of")


def test_commands_of_a_stack_that_was_never_started_say_so(tmp_path: Path) -> None:
    for arguments in (["login-link"], ["invite", "a@example.org"], ["env"]):
        assert_one_sentence(caravan(tmp_path / "home", *arguments), "Nothing was started here yet")


def test_it_lists_benchmarks_and_names_them_where_one_is_unknown(tmp_path: Path) -> None:
    assert caravan(tmp_path, "bench").returncode == 0
    assert_one_sentence(caravan(tmp_path, "bench", "speed"), "There is no benchmark 'speed'")
