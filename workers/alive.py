"""How a process without a server shows that it goes on: it touches a file, again and again."""

import contextlib
import os
import time
from pathlib import Path

VARIABLE = "CARAVAN_ALIVE_FILE"  # set by the table of processes
FRESH_S = 20.0  # those who touch it do so every few seconds


def show_alive() -> None:
    """Touch the file that the environment names, if it names one."""
    if path := os.environ.get(VARIABLE):
        with contextlib.suppress(OSError):  # a full disk must end nobody
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).touch()


def is_fresh(path: Path) -> bool:
    """Raises OSError where there is no such file."""
    return time.time() - path.stat().st_mtime < FRESH_S
