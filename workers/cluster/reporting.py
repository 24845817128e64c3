"""How the processes of a run report: each its own spool on local disk and its own shipper."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.records.events import Gap
from engine.telemetry.connection import Connection
from engine.telemetry.reporter import Reporter

NUMBERS_OF_A_LIFE = 10**9  # of events; no process tells as many


@dataclass(frozen=True)
class Address:
    """Where and as whom to report. Handed from the driver to its actors in a call, in memory."""

    url: str
    token: str
    run_id: str
    attempt_id: str

    def __repr__(self) -> str:
        return f"Address({self.url}, {self.attempt_id})"  # the token stays out of every log

    def reporter(
        self, source: str, on_revoked: Callable[[str], None] | None = None, life: int = 1
    ) -> Reporter:
        """`life`: of a process that replaces one of this source, 2 and up. It may be on another
        machine, and uses none of the numbers of those before it."""
        folder, after = self._folder() / source, (life - 1) * NUMBERS_OF_A_LIFE
        return Reporter(folder, source, self.connection(), on_revoked=on_revoked, after=after)

    def connection(self) -> Connection:
        return Connection(self.url, self.token)

    def record_gaps(self, reporter: Reporter) -> None:
        """What earlier attempts left unshipped on this machine can be shipped no more: say so."""
        for folder in self._folder().parent.iterdir():
            if folder.name == self.attempt_id:
                continue
            segments = _segments(folder)
            items = sum(path.read_bytes().count(b"\n") for path in segments)
            if items:
                since = min(path.stat().st_mtime for path in segments)
                what = f"telemetry that attempt {folder.name} had not shipped when it ended"
                reporter.spool.add(Gap, what=what, items=items, since=since)
            shutil.rmtree(folder, ignore_errors=True)

    def ship_leftovers(self, timeout_s: float) -> bool:
        """Ship what processes of this attempt left on this machine: they ended before all of it
        arrived, or were killed. True when nothing is left; the spools are removed then."""
        deadline = time.monotonic() + timeout_s
        arrived = True
        for folder in self._folder().iterdir():
            if any(path.stat().st_size for path in _segments(folder)):
                left = max(0.0, deadline - time.monotonic())
                arrived = self.reporter(folder.name).close(left) and arrived
        if arrived:
            shutil.rmtree(self._folder(), ignore_errors=True)
        return arrived

    def _folder(self) -> Path:
        """CARAVAN_SPOOL names the folder for all spools of a machine, on a disk of its own say."""
        given = os.environ.get("CARAVAN_SPOOL")
        base = Path(given or Path(tempfile.gettempdir()) / f"caravan-spool-{os.getuid()}")
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if base.stat().st_uid != os.getuid():
            raise PermissionError(f"{base} belongs to another user: set CARAVAN_SPOOL elsewhere.")
        folder = base / self.run_id / self.attempt_id
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _segments(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".jsonl", ".open")]
