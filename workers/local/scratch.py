"""A stack in a temporary folder, on its own sockets and free ports: what tests run on."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from workers.local.places import Places
from workers.local.ports import free_port
from workers.local.up import Options, Stack, build, start, stop


@contextlib.contextmanager
def scratch_stack(only: tuple[str, ...] = ()) -> Iterator[Stack]:
    """Start all services, or `only` some, in a new folder; stop them and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="caravan-test-", dir="/tmp"))
    if os.geteuid() == 0:
        folder.chmod(0o711)  # root's PostgreSQL runs as another user
    options = Options(port=free_port(set()), demo=False, only=only, durable=False)
    stack = build(Places(folder / "home", folder / "run"), options)
    try:
        start(stack)
        yield stack
    finally:
        stop(stack)
        shutil.rmtree(folder, ignore_errors=True)
