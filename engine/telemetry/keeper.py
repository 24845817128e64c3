"""Which trajectories are stored, and their way there: shards every few seconds.

Everything below a rate is kept, above it one group in so many, whole. Failures and evaluations are
always kept.
"""

import time
from collections.abc import Callable, Sequence

from engine.records.shards import MAX_SHARD_BYTES, write_shard
from engine.records.trajectory import Trajectory
from engine.telemetry.spool import Spool

FLUSH_S = 3.0
KEEP_ALL_BELOW_PER_S = 4.0  # trajectories
KEEP_ONE_GROUP_IN = 16
_BURST_S = 20.0  # what may come at once after a quiet time, in seconds of the rate
_BYTES_PER_TOKEN = 40  # of JSON, generously
_FLUSH_BYTES = MAX_SHARD_BYTES // 2


class Keeper:
    """Not for several threads. `produced` and `kept` count trajectories."""

    def __init__(self, spool: Spool, now: Callable[[], float] = time.monotonic) -> None:
        self.produced = 0
        self.kept = 0
        self._spool = spool
        self._now = now
        self._credit = KEEP_ALL_BELOW_PER_S * _BURST_S
        self._credit_at = now()
        self._over = 0  # groups above the rate so far
        self._waiting: list[Trajectory] = []
        self._waiting_bytes = 0
        self._flushed_at = now()

    def add_group(self, trajectories: Sequence[Trajectory]) -> frozenset[str]:
        """Take what is to be kept of a group; the ids of that."""
        kept = set()
        whole = self._keeps_all(len(trajectories))
        self.produced += len(trajectories)
        for trajectory in trajectories:
            if whole or not trajectory.success or trajectory.purpose == "evaluate":
                self.kept += 1
                kept.add(trajectory.id)
                self._waiting.append(trajectory)
                tokens = sum(len(segment.ids) for segment in trajectory.segments)
                self._waiting_bytes += tokens * _BYTES_PER_TOKEN
        if self._waiting_bytes >= _FLUSH_BYTES or self._now() - self._flushed_at >= FLUSH_S:
            self.flush()
        return frozenset(kept)

    def flush(self) -> None:
        """Hand what is kept to the spool."""
        self._flushed_at = self._now()
        if self._waiting:
            shard, sha256, rows = write_shard(self._waiting)
            self._spool.add_shard(shard, sha256, rows)
            self._waiting = []
            self._waiting_bytes = 0

    def _keeps_all(self, count: int) -> bool:
        now = self._now()
        earned = (now - self._credit_at) * KEEP_ALL_BELOW_PER_S
        self._credit = min(self._credit + earned, KEEP_ALL_BELOW_PER_S * _BURST_S)
        self._credit_at = now
        if self._credit >= count:
            self._credit -= count
            return True
        self._over += 1
        return self._over % KEEP_ONE_GROUP_IN == 0
