"""Says every few seconds that a run is alive, and hears what is wished of it."""

import logging
import threading
from collections.abc import Callable

from engine.telemetry.connection import Connection, IngestError, RefusedError, RevokedError

log = logging.getLogger(__name__)


class Heartbeat(threading.Thread):
    """An outage changes nothing: the run goes on with the last wish that was heard."""

    def __init__(
        self,
        connection: Connection,
        interval_s: float,
        step: Callable[[], int],
        each: Callable[[], None],
    ) -> None:
        """`step`: where the run is; `each` is called before every beat."""
        super().__init__(name="caravan-heartbeat", daemon=True)
        self.stop_wished = threading.Event()
        self.revoked = ""  # why, once this attempt can report no more
        self._connection = connection
        self._interval_s = interval_s
        self._step = step
        self._each = each
        self._ending = threading.Event()
        self._silent = False

    def run(self) -> None:
        while not self._ending.is_set() and not self.revoked:
            try:
                self._each()
                self._beat()
            except Exception:  # telemetry must not end a training
                log.exception("A heartbeat failed.")
            self._ending.wait(self._interval_s)

    def revoke(self, reason: str) -> None:
        if not self.revoked:
            log.warning("Nothing more is reported: %s", reason)
            self.revoked = reason
            self.stop_wished.set()

    def end(self, timeout_s: float, is_heard: bool) -> None:
        """Beat no more, but once for the last step where somebody hears it."""
        self._ending.set()
        self.join(timeout_s)
        if is_heard and not self.revoked:
            self._beat()

    def _beat(self) -> None:
        try:
            answer = self._connection.heartbeat("training", 0, self._step())
        except RevokedError as error:
            self.revoke(str(error))
        except (IngestError, RefusedError) as error:
            if not self._silent:
                log.warning("Caravan is not reached; the run goes on: %s", error)
            self._silent = True
        else:
            self._silent = False
            if answer.get("command", "run") != "run":
                self.stop_wished.set()
