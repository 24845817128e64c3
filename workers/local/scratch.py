"""A stack in a temporary folder, on its own sockets and free ports: what tests run on."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from workers.local.places import Places
from workers.local.ports import free_port
from workers.local.stack import Options, Stack, build, start, stop
from workers.local.state import end, read_state, started_by
from workers.local.supervisor import Say

PARENT = Path("/tmp")  # short, and every user may pass through
PREFIX = "caravan-test-"
STALE_SECONDS = 2 * 3600  # no test takes as long


def _silent(line: str) -> None:
    """Tests have something else to say."""


@contextlib.contextmanager
def scratch_stack(
    only: tuple[str, ...] = (), say: Say = _silent, durable: bool = False
) -> Iterator[Stack]:
    """Start all services, or `only` some, in a new folder; stop them and remove it at the end.

    `durable`: what PostgreSQL has committed survives a power cut, as `up` has it; it costs time.
    Nobody watches over them meanwhile: `stack.supervisor.watch` restarts what dies.
    """
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=PARENT))
    if os.geteuid() == 0:
        folder.chmod(0o711)  # root's PostgreSQL runs as another user
    options = Options(port=free_port(set()), demo=False, only=only, durable=durable, say=say)
    stack = build(Places(folder / "home", folder / "run"), options)
    try:
        start(stack)
        yield stack
    finally:
        stop(stack)
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path = PARENT, stale_seconds: float = STALE_SECONDS) -> None:
    """End and remove scratch stacks whose owner was killed, long enough ago to be sure."""
    for folder in parent.glob(f"{PREFIX}*"):
        places = Places(folder / "home", folder / "run")
        try:
            found = folder.stat()
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < stale_seconds:
                continue
            state = read_state(places)
        except OSError:
            continue  # somebody else removes it at this moment
        if state.supervisor is None or state.supervisor.find() is None:
            if state.instance:
                end([process for process, _ in started_by(state.instance)], grace=5)
            shutil.rmtree(folder, ignore_errors=True)
