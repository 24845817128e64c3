"""PostgreSQL and Valkey from their wheels, for real, in a temporary folder."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from workers.local.places import Places
from workers.local.postgres import copied_programs, reachable, wheel_folder
from workers.local.scratch import scratch_stack
from workers.local.stack import STORES, Options, Stack, build, start, stop
from workers.local.state import started_by

pytestmark = pytest.mark.stack


@pytest.fixture
def places_in_tmp() -> Iterator[Places]:
    """A short path that every user can pass through, unlike pytest's own folders."""
    folder = Path(tempfile.mkdtemp(prefix="caravan-test-", dir="/tmp"))
    folder.chmod(0o711)
    yield Places(folder / "home", folder / "run")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def stores() -> Iterator[Stack]:
    with scratch_stack(only=STORES) as stack:
        yield stack


def test_its_postgres_is_18_on_a_socket_that_only_we_may_use(stores: Stack) -> None:
    with psycopg.connect(stores.layout.database_url) as connection:
        row = connection.execute(
            "SELECT current_setting('server_version_num')::int, current_user, "
            "current_setting('listen_addresses'), "
            "(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)"
        ).fetchone()
    assert row is not None
    assert row[0] // 10000 == 18
    assert row[1:] == ("caravan", "", False)
    assert stat.S_IMODE(stores.cluster.data.stat().st_mode) == 0o700
    assert stat.S_IMODE(stores.cluster.sockets.stat().st_mode) == 0o700


def test_a_scratch_stack_leaves_nothing_behind() -> None:
    with scratch_stack(only=("valkey",)) as stack:
        instance = stack.supervisor.state.instance
        assert started_by(instance)
    assert not started_by(instance)
    assert not stack.places.home.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_its_postgres_refuses_another_user_even_the_one_that_runs_it(stores: Stack) -> None:
    assert stores.cluster.account is not None
    done = stores.cluster.run("psql", stores.layout.database_url, "-c", "SELECT 1")
    assert done.returncode != 0
    assert "Peer authentication failed" in done.stderr


def test_its_data_survives_a_restart(stores: Stack) -> None:
    with psycopg.connect(stores.layout.database_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 41 + 1 AS answer")
    assert _valkey(stores.layout.redis_url, "SET kept 42") == "+OK"
    stores.supervisor.stop()
    stores.supervisor.start(STORES)
    with psycopg.connect(stores.layout.database_url) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    assert _valkey(stores.layout.redis_url, "GET kept") == "$2"


def test_its_valkey_asks_for_the_password(stores: Stack) -> None:
    wrong = stores.layout.redis_url.replace(
        urlsplit(stores.layout.redis_url).password or "", "guess"
    )
    assert _valkey(wrong, "GET kept").startswith("-NOAUTH")
    config = stores.places.home / "valkey" / "valkey.conf"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_a_second_start_on_the_same_home_is_refused(stores: Stack) -> None:
    script = (
        "from pathlib import Path\n"
        "from workers.local.places import Places, UserError\n"
        "from workers.local.stack import Options, build\n"
        f"places = Places(Path({str(stores.places.home)!r}), Path({str(stores.places.run)!r}))\n"
        "try:\n    build(places, Options())\n"
        "except UserError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "already running" in done.stdout


def test_a_start_that_was_killed_is_picked_up(places_in_tmp: Places) -> None:
    options = Options(only=STORES, durable=False)
    killed = build(places_in_tmp, options)
    start(killed)
    pids = {name: child.process.pid for name, child in killed.supervisor.children.items()}  # type: ignore[union-attr]
    os.close(killed.lock)  # all that is left of a process that was killed
    following = build(places_in_tmp, options)
    try:
        start(following)
        found = {n: c.process.pid for n, c in following.supervisor.children.items()}  # type: ignore[union-attr]
        assert found == pids
    finally:
        stop(following)


def test_a_folder_is_reachable_only_if_every_parent_lets_pass(places_in_tmp: Places) -> None:
    closed = places_in_tmp.home.parent / "closed"
    inner = closed / "inner"
    inner.mkdir(parents=True)
    somebody = 12345
    inner.chmod(0o755)
    closed.chmod(0o755)
    assert reachable(inner, somebody)
    closed.chmod(0o700)
    assert not reachable(inner, somebody)


def _valkey(url: str, command: str) -> str:
    address = urlsplit(url)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address.path)
        connection.sendall(f"AUTH {address.password}\r\n{command}\r\n".encode())
        with connection.makefile() as answers:
            answers.readline()
            return answers.readline().strip()


def test_its_programs_run_from_a_copy(places_in_tmp: Places) -> None:
    package = copied_programs(wheel_folder(), places_in_tmp.home.parent / "outside")
    postgres = package / "pginstall18/bin/postgres"
    assert reachable(postgres, uid=12345)
    done = subprocess.run([str(postgres), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("postgres (PostgreSQL) 18.")
    libpq = subprocess.run(
        [str(postgres.with_name("psql")), "--version"], capture_output=True, text=True, check=True
    )
    assert libpq.stdout.startswith("psql (PostgreSQL) 18.")
