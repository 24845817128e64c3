"""`caravan up`: from an empty folder to a running stack, each step a line with its time."""

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from workers.local import postgres
from workers.local.local_layout import Exposure, make_layout
from workers.local.places import Places, UserError, prepare
from workers.local.ports import choose_ports
from workers.local.processes import SETUP, Layout, Service, control_env, processes
from workers.local.quick_start import follow_quick_start
from workers.local.state import read_state, record_self, started_by, write_state
from workers.local.supervisor import StartInterruptedError, Supervisor, inherited

T = TypeVar("T")
STORES = ("postgres", "valkey")
INTERRUPT_SECONDS = 20
STOP_SECONDS = 8.0
NEEDED_DISK = 5 * 10**8


@dataclass(frozen=True)
class Options:
    """What the person asked `up` for."""

    exposure: Exposure = field(default_factory=Exposure)
    port: int | None = None
    demo: bool = True
    only: tuple[str, ...] = ()
    durable: bool = True  # False: tests, whose data no power cut can take


@dataclass
class Stack:
    """A stack that is being started or runs."""

    places: Places
    layout: Layout
    cluster: postgres.Cluster
    supervisor: Supervisor
    lock: int  # held while this process lives
    login_link: str = ""


def say(line: str) -> None:
    """Print one step, at once, whoever reads it."""
    print(line, flush=True)


def up(places: Places, options: Options) -> None:
    """Start the stack, watch over it, and stop it when asked to by a signal."""
    options.exposure.check()
    stack = build(places, options)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stack.supervisor.ask_to_stop())
    try:
        start(stack)
        _welcome(stack, options)
        stack.supervisor.watch()
        say("\nstopping: active runs save a checkpoint first (again Ctrl-C: at once)")
        _interrupt_runs(stack)
    except StartInterruptedError:
        say("stopping")
    finally:
        stop(stack)


def build(places: Places, options: Options) -> Stack:
    """Folders, secrets, cluster, ports and the table; nothing runs yet."""
    prepare(places)
    state = read_state(places)
    lock = _lock(places, state.url)
    free = shutil.disk_usage(places.home).free
    if free < NEEDED_DISK:
        raise UserError(
            f"The disk that holds {places.home} is full: {free / 1e6:.0f} MB are free, "
            f"{NEEDED_DISK / 1e6:.0f} MB are needed. Free some, or set CARAVAN_HOME elsewhere."
        )
    state.instance = state.instance or secrets.token_hex(8)
    state.supervisor, state.ready = record_self(), False
    cluster = timed("database cluster", lambda: postgres.prepare_cluster(places, options.durable))
    held = set(state.ports.values()) if started_by(state.instance) else set()
    state.ports = choose_ports(state.ports, held, options.port, options.exposure.host)
    layout = make_layout(places, cluster, state.ports, options.exposure)
    state.url, state.ingest_url = layout.url, layout.ingest_url
    table = _chosen(layout, options.only)
    accounts = {"postgres": cluster.account} if cluster.account else {}
    write_state(places, state)
    supervisor = Supervisor(places, table, state, say, accounts)
    return Stack(places, layout, cluster, supervisor, lock)


def _chosen(layout: Layout, only: Sequence[str]) -> list[Service]:
    table = processes(layout)
    names = [service.name for service in table]
    for name in only:
        if name not in names:
            raise UserError(f"There is no service {name!r}: the services are {', '.join(names)}.")
    return [service for service in table if not only or service.name in only]


def _lock(places: Places, url: str) -> int:
    """Hold the home folder. Raises UserError where another `up` holds it."""
    lock = os.open(places.home, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UserError(
            f"Caravan is already running on {places.home} ({url or 'starting'}): "
            "see `caravan status`, stop it with `caravan down`."
        ) from None
    return lock


def start(stack: Stack) -> None:
    """Bring the stores up, set the web tier up beside Ray's start, then start the rest."""
    supervisor = stack.supervisor
    supervisor.adopt_or_end_orphans()
    names = list(supervisor.children)
    if "ray-head" in names:
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
    stack.supervisor.stop(STOP_SECONDS)
    stack.supervisor.state.supervisor = None
    stack.supervisor.state.ready = False
    write_state(stack.places, stack.supervisor.state)
    os.close(stack.lock)


def _welcome(stack: Stack, options: Options) -> None:
    say(f"\nCaravan is up: {stack.layout.url}")
    if stack.login_link:
        say(f"Log in once with {stack.login_link}")
        say("Ctrl-C stops it. `caravan login-link` makes another link.\n")
    if options.demo and stack.login_link:
        _launch_quick_start(stack)


def _launch_quick_start(stack: Stack) -> None:
    """Launch it unless this database has it already. Its failure stops nothing."""
    try:
        run_id = manage(stack, ["launch_demo"])
    except UserError as error:
        say(f"the quick start was not launched: {error}")
        return
    if run_id:
        say(f"the quick start runs: {stack.layout.url}/runs/{run_id}")
        follow_quick_start(stack.places, run_id, say)


def _set_up_web(stack: Stack) -> str:
    """Migrate, collect static files, make the first admin and tokens; returns a login link."""
    process = subprocess.Popen(
        [sys.executable, "-m", SETUP],
        env={**inherited(), **control_env(stack.layout)},
        cwd=stack.places.home,
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
            say(line.rstrip())
    errors = process.stderr.read()
    if process.wait() != 0:
        raise UserError(f"Setting up the web tier failed: {_keep(stack, 'setup', errors)}")
    return link


def manage(stack: Stack, arguments: Sequence[str]) -> str:
    """Run a command of webapp.manage; returns what it printed. Raises UserError if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "webapp.manage", *arguments],
        env={**inherited(), **control_env(stack.layout)},
        cwd=stack.places.home,
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
    return f"{(output.strip() or 'no message').splitlines()[-1]} (all of it: {log})"


def _interrupt_runs(stack: Stack) -> None:
    """Let active runs save and end; a second signal cuts the wait short."""
    if "web" not in stack.supervisor.children:
        return
    stack.supervisor.stop_asked.clear()
    process = subprocess.Popen(
        [sys.executable, "-m", "webapp.manage", "interrupt_runs", "--wait", str(INTERRUPT_SECONDS)],
        env={**inherited(), **control_env(stack.layout)},
        cwd=stack.places.home,
        start_new_session=True,
    )
    deadline = time.monotonic() + INTERRUPT_SECONDS + 3
    while process.poll() is None:
        if stack.supervisor.stop_asked.wait(0.1) or time.monotonic() > deadline:
            process.kill()
            process.wait()


def timed(what: str, action: Callable[[], T]) -> T:
    began = time.monotonic()
    result = action()
    say(f"{what}  {time.monotonic() - began:.1f} s")
    return result


def environment(places: Places) -> dict[str, str]:
    """The environment that the control plane's processes of this home have."""
    state = read_state(places)
    if not state.ports:
        raise UserError("Nothing was started here yet: run `caravan up` first.")
    cluster = postgres.prepare_cluster(places)
    exposure = Exposure(url=state.url)
    return control_env(make_layout(places, cluster, state.ports, exposure))
