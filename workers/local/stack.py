"""One stack of all services on this machine: built from a folder, started, stopped."""

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from workers.local import postgres
from workers.local.local_layout import Exposure, make_layout
from workers.local.places import CHECKOUT, Places, UserError, prepare, stamp
from workers.local.ports import choose_ports
from workers.local.processes import SERVICES, SETUP, Layout, control_env, processes
from workers.local.state import read_state, record_self, started_by, write_state
from workers.local.supervisor import Say, Supervisor, inherited

T = TypeVar("T")
STORES = ("postgres", "valkey")
NEEDED_DISK = 5 * 10**8


def say(line: str) -> None:
    """Print a line at once, whoever reads it."""
    print(line, flush=True)


@dataclass(frozen=True)
class Options:
    """What the person asked for."""

    exposure: Exposure = field(default_factory=Exposure)
    port: int | None = None
    demo: bool = True
    only: tuple[str, ...] = ()
    durable: bool = True  # False: tests, whose data no power cut can take
    say: Say = say


@dataclass
class Stack:
    """A stack that is being started or runs."""

    places: Places
    layout: Layout
    cluster: postgres.Cluster
    supervisor: Supervisor
    lock: int  # held while this process lives
    login_link: str = ""

    def python(self, *arguments: str) -> dict[str, object]:
        """What `subprocess` needs to run one of our modules in this stack."""
        return {
            "args": [sys.executable, *arguments],
            "env": {**inherited(), **control_env(self.layout)},
            "cwd": self.places.home,
        }


def build(places: Places, options: Options) -> Stack:
    """Folders, secrets, cluster, ports and the table; nothing runs yet.

    Raises UserError where a name, a port, a folder or the disk is not as it must be.
    """
    for name in options.only:
        if name not in SERVICES:
            known = ", ".join(SERVICES)
            raise UserError(f"There is no service {name!r}: the services are {known}.")
    remembered = read_state(places)
    held = set(remembered.ports.values()) if started_by(remembered.instance) else set()
    ports = choose_ports(remembered.ports, held, options.port, options.exposure.host)
    prepare(places)
    lock = _lock(places, remembered.url)
    _check_disk(places)
    state = read_state(places)
    state.instance = state.instance or secrets.token_hex(8)
    state.supervisor, state.ports = record_self(), ports
    state.ready = state.welcomed = False
    cluster = _timed(
        options.say, "database cluster", lambda: postgres.prepare_cluster(places, options.durable)
    )
    if not cluster.data.is_relative_to(places.home):
        options.say(f"its data is in {cluster.data}, where user {postgres.ACCOUNT} can reach it")
    layout = make_layout(places, cluster, ports, options.exposure)
    state.url, state.ingest_url = layout.url, layout.ingest_url
    write_state(places, state)
    table = [s for s in processes(layout) if not options.only or s.name in options.only]
    accounts = {"postgres": cluster.account} if cluster.account else {}
    code = stamp(CHECKOUT / name for name in ("webapp", "workers", "engine", "requirements"))
    supervisor = Supervisor(places, table, state, options.say, accounts, code)
    return Stack(places, layout, cluster, supervisor, lock)


def _timed(say: Say, what: str, action: Callable[[], T]) -> T:
    began = time.monotonic()
    result = action()
    say(f"{what}  {time.monotonic() - began:.1f} s")
    return result


def _check_disk(places: Places) -> None:
    free = shutil.disk_usage(places.home).free
    if free < NEEDED_DISK:
        raise UserError(
            f"The disk that holds {places.home} is full: {free / 1e6:.0f} MB are free, "
            f"{NEEDED_DISK / 1e6:.0f} MB are needed. Free some, or set CARAVAN_HOME elsewhere."
        )


def _lock(places: Places, url: str) -> int:
    """Hold the home folder. Raises UserError where another `up` holds it."""
    lock = os.open(places.home, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UserError(
            f"Caravan is already running on {places.home} ({url or 'starting'}): "
            "see `./caravan status`, stop it with `./caravan down`."
        ) from None
    return lock


def start(stack: Stack) -> None:
    """Bring the stores up, set the web tier up beside Ray's start, then start the rest."""
    supervisor = stack.supervisor
    supervisor.adopt_or_end_orphans()
    names = list(supervisor.children)
    if "ray-head" in names and not supervisor.children["ray-head"].process:
        shutil.rmtree(stack.places.run / "ray", ignore_errors=True)  # logs of the last session
        supervisor.begin("ray-head")
    supervisor.start([name for name in names if name in STORES])
    if "postgres" in names:
        postgres.ensure_database(stack.cluster)
    if "web" in names:
        stack.login_link = _set_up_web(stack)
    supervisor.start(names)
    supervisor.state.ready = True
    write_state(stack.places, supervisor.state)


def stop(stack: Stack) -> None:
    """Stop what runs and forget it; the ports stay remembered."""
    stack.supervisor.stop()
    state = stack.supervisor.state
    state.supervisor, state.ready, state.welcomed = None, False, False
    write_state(stack.places, state)
    os.close(stack.lock)


def _set_up_web(stack: Stack) -> str:
    """Migrate, collect static files, make the first admin and tokens; returns a login link."""
    process: subprocess.Popen[str] = subprocess.Popen(
        **stack.python("-m", SETUP),  # type: ignore[call-overload]
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    link = ""
    for line in process.stdout:
        if line.startswith("http"):
            link = line.strip()
        else:
            stack.supervisor.say(line.rstrip())
    errors = process.stderr.read()
    if process.wait() != 0:
        raise UserError(f"Setting up the web tier failed: {_keep(stack, 'setup', errors)}")
    return link


def manage(stack: Stack, arguments: Sequence[str]) -> str:
    """Run a command of webapp.manage; returns what it printed. Raises UserError if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        **stack.python("-m", "webapp.manage", *arguments),  # type: ignore[call-overload]
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UserError(f"{arguments[0]} failed: {_keep(stack, arguments[0], done.stderr)}")
    return done.stdout.strip()


def _keep(stack: Stack, name: str, output: str) -> str:
    """Write a failed command's output to a log; returns its last line and where the rest is."""
    log = stack.places.logs / f"{name}.log"
    log.write_text(output)
    return f"{last_message(output)} (all of it: {log})"


def last_message(output: str) -> str:
    """The line that says most: what a traceback ends with, else the last line."""
    lines = output.strip().rpartition("Traceback (most recent call last):")[2].splitlines()
    if "Traceback (most recent call last):" in output:
        lines = [line for line in lines if line and not line.startswith(" ")][:1] or lines
    return lines[-1] if lines else "no message"


def environment(places: Places) -> dict[str, str]:
    """The environment that the control plane's processes of this home have."""
    state = read_state(places)
    if not state.ports:
        raise UserError("Nothing was started here yet: run `./caravan up` first.")
    cluster = postgres.prepare_cluster(places)
    return control_env(make_layout(places, cluster, state.ports, Exposure(url=state.url)))
