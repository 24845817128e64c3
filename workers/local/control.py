"""What other terminals ask of a stack: start it detached, stop it, its state, its logs."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import psutil

from workers.local.places import Places, UserError, prepare
from workers.local.stack import say
from workers.local.state import State, end, read_state, started_by, write_state

DOWN_SECONDS = 60.0
POLL_SECONDS = 0.1


def up_detached(places: Places, arguments: Sequence[str]) -> None:
    """Run `up` with `arguments` in a session of its own; return when it has said what it says.

    Raises UserError if it ends before that; its own message was shown by then.
    """
    prepare(places)
    log = places.logs / "up.log"
    with log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cli", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with log.open("rb") as shown:
        shown.seek(start)
        while process.poll() is None:
            _copy(shown)
            state = read_state(places)
            if state.welcomed and state.supervisor and state.supervisor.pid == process.pid:
                break
            time.sleep(POLL_SECONDS)
        _copy(shown)
    if process.poll() is not None:
        raise UserError(f"It did not start (exit code {process.returncode}); its output: {log}")
    say(f"It runs in the background (process {process.pid}): `./caravan down` stops it.")


def _copy(file: BinaryIO) -> None:
    sys.stdout.write(file.read().decode(errors="replace"))
    sys.stdout.flush()


def down(places: Places) -> None:
    """Stop the running `up`, or what one that was killed has left."""
    state = read_state(places)
    supervisor = state.supervisor.find() if state.supervisor else None
    if supervisor is not None:
        supervisor.terminate()
        try:
            supervisor.wait(DOWN_SECONDS)
        except psutil.TimeoutExpired:
            raise UserError(
                f"Process {supervisor.pid} has not stopped after {DOWN_SECONDS:.0f} s: "
                f"see {places.logs / 'up.log'}."
            ) from None
        say("stopped")
        return
    left = [process for process, _ in started_by(state.instance)] if state.instance else []
    if not left:
        say("nothing was running")
        return
    end(left, grace=10)
    state.supervisor, state.ready = None, False
    state.services.clear()
    write_state(places, state)
    say(f"ended {len(left)} processes that a killed `up` had left")


@dataclass(frozen=True)
class Running:
    """One line of `status`."""

    service: str
    pid: int | None
    since: datetime | None


def status(places: Places) -> tuple[State, list[Running]]:
    """The recorded state and which of its services live."""
    state = read_state(places)
    lines = []
    for name, recorded in state.services.items():
        process = recorded.find()
        since = datetime.fromtimestamp(recorded.created, UTC) if process else None
        lines.append(Running(name, process.pid if process else None, since))
    return state, lines


def is_running(places: Places, service: str) -> bool:
    """Whether the recorded process of a service lives."""
    recorded = read_state(places).services.get(service)
    return recorded is not None and recorded.find() is not None


def log_file(places: Places, service: str) -> Path:
    """The log of a service. Raises UserError naming those that exist."""
    path = places.logs / f"{service}.log"
    if path.parent != places.logs or not path.is_file():
        names = sorted(p.stem for p in places.logs.glob("*.log")) if places.logs.exists() else []
        known = f"there are {', '.join(names)}" if names else "nothing was started here yet"
        raise UserError(f"There is no log of {service!r}: {known}.")
    return path


def last_lines(path: Path, count: int) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-count:]


def follow(path: Path) -> Iterator[str]:
    """What is written from now on, through rotation, until interrupted."""
    file = path.open(errors="replace")
    file.seek(0, os.SEEK_END)
    while True:
        text = file.read()
        if text:
            yield text
        elif path.exists() and path.stat().st_ino != os.fstat(file.fileno()).st_ino:
            file.close()
            file = path.open(errors="replace")
        else:
            time.sleep(POLL_SECONDS)
