"""All that one process tells the control plane, behind one object."""

import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from engine.records.events import Log, Metrics, Spans
from engine.telemetry.connection import Connection
from engine.telemetry.keeper import Keeper
from engine.telemetry.shipper import Shipper
from engine.telemetry.spans import PhaseClock
from engine.telemetry.spool import DEFAULT_CAP_BYTES, Spool

Axis = Literal["trainer_step", "rollout_step", "environment_step", "wall"]

_TICK_S = 2.0
_MAX_TEXT = 20_000  # of one log event


class Reporter:
    """`spool` takes any event; `phases` and `keeper` belong to the actor's own thread."""

    def __init__(
        self,
        folder: Path,
        source: str,
        connection: Connection,
        cap_bytes: int = DEFAULT_CAP_BYTES,
        on_revoked: Callable[[str], None] | None = None,
        after: int = 0,
    ) -> None:
        """`after`: as of `Spool`."""
        self.spool = Spool(folder, source, cap_bytes, after)
        self.phases = PhaseClock()
        self.keeper = Keeper(self.spool)
        self._connection = connection
        self._shipper = Shipper(self.spool, connection, on_revoked)
        self._shipper.start()
        self._ticked_at = time.monotonic()

    def metrics(self, step: int, values: Mapping[str, float], axis: Axis = "trainer_step") -> None:
        self.spool.add(Metrics, axis=axis, step=step, values=dict(values))

    def log(self, text: str, level: Literal["debug", "info", "warning", "error"] = "info") -> None:
        self.spool.add(Log, level=level, text=text[-_MAX_TEXT:])

    def error(self, what: str, error: BaseException) -> None:
        """Put an exception into the run's log, with its traceback."""
        self.log(f"{what}\n{''.join(traceback.format_exception(error))}", level="error")

    def tick(self, busy: Callable[[float], Any] | None = None) -> None:
        """Send what is due; call it often. `busy` gets the busy share since the last time."""
        if time.monotonic() - self._ticked_at >= _TICK_S:
            self._ticked_at = time.monotonic()
            self.send_phases(busy)
            self.keeper.flush()

    def close(self, timeout_s: float) -> bool:
        """Ship the rest; True when all of it arrived within `timeout_s` seconds."""
        self.send_phases(None)
        self.keeper.flush()
        arrived = self._shipper.close(timeout_s)
        self._connection.close()
        return arrived

    def send_phases(self, busy: Callable[[float], Any] | None) -> None:
        """Send the phases since the last time, due or not; `busy` as in `tick`."""
        spans, share = self.phases.drain()
        if spans:
            self.spool.add(Spans, spans=spans)
        if busy is not None:
            busy(share)
