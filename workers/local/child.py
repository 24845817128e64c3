"""One service while it is supervised."""

import subprocess
import time
from dataclasses import dataclass

import psutil

from workers.local.processes import Service
from workers.local.state import is_alive

START_SECONDS = 120.0


@dataclass
class Child:
    """Waiting (no process), starting, or ready."""

    service: Service
    process: psutil.Process | None = None
    popen: subprocess.Popen[bytes] | None = None  # None when adopted from an earlier supervisor
    ready: bool = False
    started: float = 0.0
    log_start: int = 0
    deaths: int = 0
    retry_at: float = 0.0
    silent: int = 0  # how often in a row the watchdog got no answer

    def is_late(self) -> bool:
        return not self.ready and time.monotonic() - self.started > START_SECONDS

    def ended(self) -> str | None:
        """How the process ended, or None while it runs."""
        if self.popen is not None:
            code = self.popen.poll()
            if code is None:
                return None
            return f"signal {-code}" if code < 0 else f"exit code {code}"
        return None if self.process is not None and is_alive(self.process) else "ended"

    def forget(self) -> None:
        """It has no process any more."""
        self.process, self.popen, self.ready, self.silent = None, None, False, 0
