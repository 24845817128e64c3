"""Checkpoints of an external run: uploaded in parts from a thread, then told of."""

import hashlib
import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caravan.pulling import SAFE_PART
from engine.records.events import CheckpointSaved
from engine.telemetry.connection import Connection, IngestError, RefusedError, RevokedError
from engine.telemetry.spool import Spool

log = logging.getLogger(__name__)

PART_BYTES = 16 * 2**20
RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True)
class Saved:
    """A checkpoint folder to upload; `done` is set when it arrived, or never will."""

    folder: Path
    path: str  # its name among the run's checkpoints
    step: int
    version: int
    final: bool
    done: threading.Event = field(default_factory=threading.Event)


class Uploader(threading.Thread):
    """Uploads one folder after the other, through outages."""

    def __init__(self, connection: Connection, spool: Spool) -> None:
        super().__init__(name="caravan-uploads", daemon=True)
        self._connection = connection
        self._spool = spool
        self._waiting: queue.Queue[Saved | None] = queue.Queue()
        self._patience_s = float("inf")
        self._deadline = float("inf")
        self._closing = threading.Event()

    def add(self, saved: Saved) -> None:
        self._waiting.put(saved)

    def close(self, patience_s: float) -> bool:
        """Upload what waits; False where nothing moved for `patience_s` seconds."""
        self._patience_s = patience_s
        self._deadline = time.monotonic() + patience_s
        self._closing.set()
        self._waiting.put(None)
        while self.is_alive() and time.monotonic() < self._deadline + 1.0:
            self.join(0.5)
        return not self.is_alive()

    def run(self) -> None:
        while (saved := self._waiting.get()) is not None:
            try:
                self._spool.add(
                    CheckpointSaved,
                    stage=0,
                    step=saved.step,
                    version=saved.version,
                    path=saved.path,
                    files=self._upload(saved.folder),
                    final=saved.final,
                )
            except (OSError, ValueError, IngestError, RefusedError, RevokedError) as error:
                log.error("The checkpoint in %s is not uploaded: %s", saved.folder, error)
                self._spool.drop("checkpoints that could not be uploaded", 1)
            finally:
                saved.done.set()

    def _upload(self, folder: Path) -> dict[str, dict[str, Any]]:
        """The manifest: file -> {size, sha256, parts}, parts being blobs in their order."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        if not paths:
            raise ValueError("the folder holds no files")
        manifest = {}
        for path in paths:
            parts = path.relative_to(folder).parts
            if all(SAFE_PART.fullmatch(part) for part in parts):
                manifest["/".join(parts)] = self._upload_file(path)
            else:
                log.warning("%s is left out: its name is not plain.", path)
        return manifest

    def _upload_file(self, path: Path) -> dict[str, Any]:
        whole, size, parts = hashlib.sha256(), 0, []
        with path.open("rb") as file:
            while piece := file.read(PART_BYTES):
                whole.update(piece)
                size += len(piece)
                parts.append(hashlib.sha256(piece).hexdigest())
                self._put(parts[-1], piece)
        return {"size": size, "sha256": whole.hexdigest(), "parts": parts}

    def _put(self, sha256: str, piece: bytes) -> None:
        """Raises IngestError only when the time that was left is over."""
        tried = 0
        while True:
            try:
                self._connection.blob(sha256, piece)
                self._deadline = time.monotonic() + self._patience_s
                return
            except IngestError:
                wait = RETRY_S[min(tried, len(RETRY_S) - 1)]
                if time.monotonic() + wait > self._deadline:
                    raise
                tried += 1
                if self._closing.is_set():
                    time.sleep(wait)
                else:
                    self._closing.wait(wait)
