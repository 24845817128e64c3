"""`caravan up`: from an empty folder to a running stack, each step a line with its time."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import psutil

from workers.local import postgres
from workers.local.local_layout import Exposure, make_layout
from workers.local.places import CHECKOUT, Places, UserError, prepare
from workers.local.ports import choose_ports
from workers.local.processes import SETUP, Layout, control_env, processes
from workers.local.state import read_state, record, started_by, write_state
from workers.local.supervisor import StartInterruptedError, Supervisor

T = TypeVar("T")
STORES = ("postgres", "valkey")
STOP_SECONDS = 8.0
INTERRUPT_SECONDS = 20


@dataclass(frozen=True)
class Options:
    """What the person asked `up` for."""

    exposure: Exposure = field(default_factory=Exposure)
    port: int | None = None
    demo: bool = True
    only: tuple[str, ...] = ()
    durable: bool = True  # False: tests, whose data no power cut can take


def say(line: str) -> None:
    """Print one step, at once, whoever reads it."""
    print(line, flush=True)


def up(places: Places, options: Options) -> None:
    """Start the stack, watch over it, and stop it when asked to by a signal."""
    stack = build(places, options)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stack.supervisor.stop_asked.set())
    try:
        start(stack, options)
        say(f"\nCaravan is up: {stack.layout.url}")
        stack.supervisor.watch()
    except StartInterruptedError:
        pass
    finally:
        stop(stack)


@dataclass
class Stack:
    """A stack that is being built or runs."""

    places: Places
    layout: Layout
    cluster: postgres.Cluster
    supervisor: Supervisor


def build(places: Places, options: Options) -> Stack:
    """Folders, secrets, cluster, ports and the table; nothing runs yet."""
    prepare(places)
    state = read_state(places)
    if state.supervisor and state.supervisor.find():
        raise UserError(
            f"Caravan is already running at {state.url} (process {state.supervisor.pid}): "
            "stop it with `caravan down`."
        )
    state.instance = state.instance or secrets.token_hex(8)
    state.supervisor, state.ready = record(psutil.Process()), False
    cluster = timed("database cluster", lambda: postgres.prepare_cluster(places, options.durable))
    held = set(state.ports.values()) if started_by(state.instance) else set()
    state.ports = choose_ports(state.ports, held, options.port, options.exposure.host)
    layout = make_layout(places, cluster, state.ports, options.exposure)
    state.url, state.ingest_url = layout.url, layout.ingest_url
    table = [s for s in processes(layout) if not options.only or s.name in options.only]
    accounts = {"postgres": cluster.account} if cluster.account else {}
    write_state(places, state)
    return Stack(places, layout, cluster, Supervisor(places, table, state, say, accounts))


def start(stack: Stack, options: Options) -> None:
    """Bring the stores up, set the web tier up, then start everything else."""
    supervisor = stack.supervisor
    supervisor.adopt_or_end_orphans()
    names = list(supervisor.children)
    supervisor.start([name for name in names if name in STORES])
    if "postgres" in names:
        postgres.ensure_database(stack.cluster)
    if "web" in names:
        for what, arguments in SETUP:
            timed(what, lambda a=arguments: manage(stack, a))  # type: ignore[misc]
    supervisor.start(names)
    supervisor.state.ready = True
    write_state(stack.places, supervisor.state)


def stop(stack: Stack) -> None:
    """Stop what runs and forget it."""
    stack.supervisor.stop(STOP_SECONDS)
    stack.supervisor.state.supervisor = None
    stack.supervisor.state.ready = False
    write_state(stack.places, stack.supervisor.state)


def manage(stack: Stack, arguments: Sequence[str]) -> str:
    """Run a command of webapp.manage and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "webapp.manage", *arguments],
        env={**os.environ, **control_env(stack.layout)},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        log = stack.places.logs / "setup.log"
        log.write_text(done.stdout + done.stderr)
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise UserError(f"`manage {arguments[0]}` failed: {last} (all of it: {log})")
    return done.stdout.strip()


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
    return control_env(make_layout(places, cluster, state.ports, Exposure()))
