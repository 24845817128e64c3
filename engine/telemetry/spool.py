"""An append-only spool of events on local disk. It never blocks or raises into training.

Segments are JSON lines named by their first sequence number, so that a spool that is opened again
goes on counting where it stopped. At 80% of its cap repeating telemetry is thinned, at 100% only
what cannot be told again is kept and `full` says that rollouts should pause; what was dropped is
recorded as Gap events.
"""

import logging
import threading
import time
from collections import Counter
from io import FileIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.records.events import Gap, Item, TrainedRows, TrajectoryRows

log = logging.getLogger(__name__)

SEGMENT_ITEMS = 1_000
SEGMENT_BYTES = 2**20
ROWS_PER_EVENT = 200
DEFAULT_CAP_BYTES = 256 * 2**20

_THIN_AT = 0.8
_KEEP_ONE_IN = 10
_RESERVE = 1.1  # of the cap, for what cannot be told again
_GAP_EVERY_S = 10.0
_REPEATING = ("metrics", "spans", "pool", "tree", "devices", "playing", "turns")
_ESSENTIAL = ("stage", "checkpoint", "gap", "decision", "clock")


class Spool:
    """One writer's events. All methods may be called from any thread."""

    def __init__(
        self, folder: Path, source: str, cap_bytes: int = DEFAULT_CAP_BYTES, after: int = 0
    ) -> None:
        """`after`: numbers up to this one are another writer's. Raises OSError when the folder
        cannot be made."""
        self.folder = folder
        self.source = source
        self.cap_bytes = cap_bytes
        self.wake = threading.Event()  # set when there is something to ship
        self._blobs = folder / "blobs"
        self._blobs.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._dropped: Counter[str] = Counter()
        self._dropping_since = 0.0
        self._seen: Counter[str] = Counter()
        self._refused_by_disk = False
        self._file: FileIO | None = None
        self._seq = max(_repair(folder), after)
        self._bytes = sum(p.stat().st_size for p in (*self._segments(), *self._blobs.iterdir()))
        self._open_segment()
        if self._bytes:
            self.wake.set()

    @property
    def fullness(self) -> float:
        """Share of the cap that waits to be shipped."""
        return self._bytes / self.cap_bytes

    @property
    def full(self) -> bool:
        """True while rollouts should pause: there is no room, or the disk refuses writes."""
        return self._bytes >= self.cap_bytes or self._refused_by_disk

    def add(self, kind: type[Item], **fields: Any) -> bool:
        """Append one event now; False when it was dropped, which a Gap will record."""
        with self._lock:
            self._record_gaps()
            return self._add(kind, fields)

    def add_shard(
        self,
        shard: bytes,
        sha256: str,
        rows: list[dict[str, Any]],
        kind: type[TrajectoryRows] | type[TrainedRows] = TrajectoryRows,
    ) -> bool:
        """Keep a shard and the rows that index it; False when there is no room."""
        what = kind.model_fields["kind"].default
        with self._lock:
            if (self._bytes + len(shard)) / self.cap_bytes >= _THIN_AT:
                self.drop(f"{what}: the spool had no room", len(rows))
                return False
            path = self._blobs / sha256
            if not path.exists():
                try:
                    partial = path.with_suffix(".partial")
                    partial.write_bytes(shard)
                    partial.replace(path)
                except OSError as error:
                    self._disk_refused(error)
                    self.drop(f"{what}: the disk refused", len(rows))
                    return False
                self._bytes += len(shard)
            for start in range(0, len(rows), ROWS_PER_EVENT):
                self.add(kind, shard=sha256, rows=rows[start : start + ROWS_PER_EVENT])
            return True

    def drop(self, what: str, items: int) -> None:
        """Count telemetry that its writer had to drop; a Gap will record it."""
        with self._lock:
            if not self._dropped:
                self._dropping_since = time.time()
            self._dropped[what] += items
            self.wake.set()

    def sealed(self) -> list[Path]:
        """All segments that can be shipped, oldest first; what was open is closed for it."""
        with self._lock:
            if self.fullness < _THIN_AT:
                self._record_gaps(at_once=True)
            if self._items:
                self._open_segment()
            return self._segments()

    def blob(self, sha256: str) -> Path | None:
        path = self._blobs / sha256
        return path if path.exists() else None

    def acknowledge(self, path: Path) -> None:
        """Forget a segment or blob that has arrived."""
        with self._lock:
            try:
                size = path.stat().st_size
                path.unlink()
            except FileNotFoundError:
                return
            self._bytes -= size

    def _add(self, kind: type[Item], fields: dict[str, Any]) -> bool:
        name = str(kind.model_fields["kind"].default)
        if what := self._refusal(name, fields):
            self.drop(what, 1)
            return False
        try:
            item = kind(source=self.source, seq=self._seq + 1, at=time.time(), **fields)
            line = item.model_dump_json().encode() + b"\n"
        except (ValidationError, ValueError) as error:
            log.warning("An event of kind %s is malformed and dropped: %s", name, error)
            self.drop(f"malformed {name}", 1)
            return False
        try:
            self._write(line)
        except OSError as error:
            self._disk_refused(error)
            self.drop(f"{name}: the disk refused", 1)
            return False
        self._refused_by_disk = False
        self._seq += 1
        self._items += 1
        self._bytes += len(line)
        self._open_bytes += len(line)
        if self._items >= SEGMENT_ITEMS or self._open_bytes >= SEGMENT_BYTES:
            self._open_segment()
        self.wake.set()
        return True

    def _refusal(self, kind: str, fields: dict[str, Any]) -> str | None:
        if self.fullness < _THIN_AT:
            return None
        if kind in _ESSENTIAL:
            return None if self.fullness < _RESERVE else f"{kind}: the spool was full"
        if self.fullness >= 1:
            return f"{kind}: the spool was full"
        if kind not in _REPEATING:
            return None
        series = f"{kind} {' '.join(sorted(fields.get('values', ())))}"
        self._seen[series] += 1
        if self._seen[series] % _KEEP_ONE_IN == 1:
            return None
        return f"{kind} thinned: the spool was at {_THIN_AT:.0%}"

    def _record_gaps(self, at_once: bool = False) -> None:
        if not self._dropped:
            return
        if not at_once and time.time() - self._dropping_since < _GAP_EVERY_S:
            return
        dropped, since = self._dropped, self._dropping_since
        self._dropped = Counter()
        for what, items in dropped.items():
            if not self._add(Gap, {"what": what[:200], "items": items, "since": since}):
                self._dropped[what] += items
        if self.fullness < _THIN_AT:
            self._seen.clear()

    def _write(self, line: bytes) -> None:
        if self._file is None:
            self._open_segment()
        if self._file is None:
            raise OSError("there is no open segment")
        written = self._file.write(line)
        if written != len(line):
            self._file.truncate(self._open_bytes)
            raise OSError(f"{written} of {len(line)} bytes were written")

    def _open_segment(self) -> None:
        """Start the next segment, then seal the one before: one of them is always there."""
        old, self._file = self._file, None
        self._items = 0
        self._open_bytes = 0
        try:
            path = self.folder / f"{self._seq + 1:015d}.open"
            self._file = path.open("ab", buffering=0)
            if old is not None:
                old.close()
                sealed = Path(str(old.name))
                sealed.rename(sealed.with_suffix(".jsonl"))
        except OSError as error:
            self._disk_refused(error)

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def _disk_refused(self, error: Exception) -> None:
        if not self._refused_by_disk:
            log.error("The telemetry spool in %s cannot be written: %s", self.folder, error)
        self._refused_by_disk = True


def _repair(folder: Path) -> int:
    """Seal what a crash left open, cut a half-written line; the last sequence number in use."""
    last = 0
    for path in sorted((*folder.glob("*.jsonl"), *folder.glob("*.open"))):
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        last = max(last, int(path.stem) - 1 + whole.count(b"\n"))
        if path.suffix == ".open":
            if whole != data:
                path.write_bytes(whole)
            path.rename(path.with_suffix(".jsonl")) if whole else path.unlink()
    segments = [path.read_bytes() for path in folder.glob("*.jsonl")]
    for blob in (folder / "blobs").iterdir():
        if not any(blob.name.encode() in segment for segment in segments):
            blob.unlink()
    return last
