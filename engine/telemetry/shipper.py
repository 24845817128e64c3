"""The thread that carries a spool to ingest: in order, idempotent, through outages."""

import json
import logging
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from engine.telemetry.connection import Connection, IngestError, RefusedError, RevokedError
from engine.telemetry.spool import Spool

log = logging.getLogger(__name__)

LINGER_S = 0.05  # what gathers in this time goes in one call: the events of one step do
FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 30.0
MAX_BATCH_BYTES = 4 * 2**20
_WITH_BLOBS = (b'"kind":"trajectories"', b'"kind":"trained"')


class Shipper(threading.Thread):
    """Ships until it is closed. After `revoked` is set it sends nothing any more."""

    def __init__(
        self, spool: Spool, connection: Connection, on_revoked: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(name=f"shipper-{spool.source}", daemon=True)
        self.revoked = threading.Event()
        self._spool = spool
        self._connection = connection
        self._on_revoked = on_revoked
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._failures = 0
        self._told: set[str] = set()

    def run(self) -> None:
        while not self.revoked.is_set():
            if not self._closing.is_set():
                self._spool.wake.wait()
                self._closing.wait(LINGER_S)
            self._spool.wake.clear()
            closing = self._closing.is_set()
            self._ship_all()
            # Shipping may itself have caused a gap to report.
            if closing and (not self._spool.sealed() or time.monotonic() >= self._deadline):
                return

    def close(self, timeout_s: float) -> bool:
        """Ship what is there; True when all of it arrived within the time."""
        self._deadline = time.monotonic() + timeout_s
        self._closing.set()
        self._spool.wake.set()
        self.join(timeout_s + 1.0)
        return not self.is_alive() and not self._spool.sealed()

    def _ship_all(self) -> None:
        for segment in self._spool.sealed():
            try:
                self._ship(segment)
                self._failures = 0
            except RevokedError as error:
                log.warning("Nothing more is shipped: %s", error)
                self.revoked.set()
                if self._on_revoked is not None:
                    self._on_revoked(str(error))
                return
            except Exception as error:  # whatever it is: without this thread nothing arrives
                self._wait_to_retry(error)
                return

    def _ship(self, segment: Path) -> None:
        lines = segment.read_bytes().splitlines()
        blobs = self._upload_blobs(lines)
        batch: list[bytes] = []
        size = 0
        for line in lines:
            if batch and size + len(line) > MAX_BATCH_BYTES:
                self._send(batch)
                batch, size = [], 0
            batch.append(line)
            size += len(line)
        self._send(batch)
        self._spool.acknowledge(segment)
        for blob in blobs:
            self._spool.acknowledge(blob)

    def _upload_blobs(self, lines: list[bytes]) -> list[Path]:
        """Blobs go first, so that a row never points at nothing."""
        found = []
        for line in lines:
            if not any(kind in line for kind in _WITH_BLOBS):
                continue
            sha256 = json.loads(line)["shard"]
            blob = self._spool.blob(sha256)
            if blob is None or blob in found:
                continue
            try:
                self._connection.blob(sha256, blob.read_bytes())
            except RefusedError as error:
                log.error("Ingest refuses a shard: %s", error)
                self._spool.drop("shards refused by ingest", 1)
            found.append(blob)
        return found

    def _send(self, batch: list[bytes]) -> None:
        if not batch:
            return
        try:
            answer = self._connection.events(batch)
        except RefusedError as error:
            if len(batch) > 1:  # find what is at fault: the rest must arrive
                middle = len(batch) // 2
                self._send(batch[:middle])
                self._send(batch[middle:])
                return
            self._refused(str(error), batch[0])
            return
        for item in answer["rejected"]:
            message = f"{item.get('field', '')}: {item.get('message', '')}"
            self._refused(message, batch[item["index"]])

    def _refused(self, message: str, line: bytes) -> None:
        """Say once what ingest refuses; count all of it."""
        if message not in self._told:
            self._told.add(message)
            log.error("Ingest refuses an event of %s: %s", self._spool.source, message)
        if b'"kind":"gap"' not in line:  # a gap about a refused gap would never end
            self._spool.drop("events refused by ingest", 1)

    def _wait_to_retry(self, error: Exception) -> None:
        if self._failures == 0:
            unforeseen = not isinstance(error, IngestError)
            log.warning("Telemetry waits on disk: %s", error, exc_info=unforeseen)
        delay = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        delay *= random.uniform(0.5, 1.0)
        left = max(0.0, self._deadline - time.monotonic())
        self._spool.wake.set()
        if self._closing.is_set():
            time.sleep(min(delay, left))
        else:
            self._closing.wait(min(delay, left))
