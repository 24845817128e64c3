"""The line to the control plane: a heartbeat every three seconds, and the wishes it brings back."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from engine.telemetry.connection import Connection, IngestError, RefusedError, RevokedError
from workers.cluster import limits

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Latches:
    rollouts: bool = False
    training: bool = False


class Control(threading.Thread):
    """Says where the run is and keeps what people wish of it.

    An outage of the web tier changes nothing: the run goes on with the last wishes it heard.
    """

    def __init__(self, connection: Connection, interval_s: float = limits.HEARTBEAT_S) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.command = "run"  # run | stop | interrupt
        self.latches = Latches()
        self.revoked = ""  # why, once this attempt may not go on
        self.terminated = False  # the process was told to end at once
        self.changed = threading.Event()  # set at every new wish
        self._connection = connection
        self._interval_s = interval_s
        self._ending = threading.Event()
        self._where: tuple[str, int, int] = ("starting", 0, 0)
        self._on_latches: Callable[[Latches], None] | None = None
        self._telling = threading.Lock()  # the newest latches are told last
        self._silent_since: float | None = None

    @property
    def wants_end(self) -> bool:
        return self.command != "run" or bool(self.revoked) or self.terminated

    def at(self, phase: str, stage: int, step: int) -> None:
        """Where the run is, `step` within the stage: told at the next heartbeat."""
        self._where = (phase, stage, step)

    def on_latches(self, call: Callable[[Latches], None] | None) -> None:
        """Who is told of the pause latches, from the heartbeat's thread, now and at each change."""
        with self._telling:
            self._on_latches = call
            if call is not None:
                call(self.latches)

    def revoke(self, reason: str) -> None:
        self.revoked = self.revoked or reason
        self.changed.set()

    def terminate(self) -> None:
        self.terminated = True
        self.changed.set()

    def run(self) -> None:
        while not self._ending.is_set() and not self.revoked:
            started = time.monotonic()
            try:
                self._beat()
            except Exception:  # a run without a heartbeat looks dead and hears no wish
                log.exception("A heartbeat failed; the run goes on.")
            self._ending.wait(max(0.0, self._interval_s - (time.monotonic() - started)))

    def end(self) -> None:
        """Beat no more. Returns when no heartbeat is under way."""
        self._ending.set()
        self.join(limits.CALL_S)

    def _beat(self) -> None:
        try:
            answer = self._connection.heartbeat(*self._where)
        except RevokedError as error:
            self.revoke(str(error))
            return
        except (IngestError, RefusedError) as error:
            if self._silent_since is None:
                self._silent_since = time.monotonic()
                log.warning("No heartbeat: %s. The run goes on.", error)
            return
        if self._silent_since is not None:
            log.info("Heartbeats are back after %.0f s.", time.monotonic() - self._silent_since)
            self._silent_since = None
        if answer.get("command", "run") != self.command:
            self.command = answer["command"]
            self.changed.set()
        latches = Latches(bool(answer.get("pause_rollouts")), bool(answer.get("pause_training")))
        if latches != self.latches:
            with self._telling:
                self.latches = latches
                self.changed.set()
                if self._on_latches is not None:
                    self._on_latches(latches)
