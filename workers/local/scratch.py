"""A stack in a temporary folder, on its own sockets and free ports: what tests run on."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from workers.local.places import Places
from workers.local.ports import free_port
from workers.local.stack import Options, Stack, build, start, stop
from workers.local.supervisor import Say


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
    folder = Path(tempfile.mkdtemp(prefix="caravan-test-", dir="/tmp"))
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
