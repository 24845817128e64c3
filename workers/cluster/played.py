"""Trajectories that a stage had its rollout workers play: on the run's storage, never in a driver.

Each worker writes its own objects, a few dozen trajectories each. What is there is not played
again by a later attempt.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import zstandard

from engine.environments.protocol import Task
from engine.records.trajectory import Trajectory
from workers.cluster.storage import RunStorage

PER_OBJECT = 64  # trajectories


@dataclass(frozen=True)
class Play:
    """Tasks to play with frozen weights, and where on the run's storage the trajectories go.

    `tasks`: which ones, practice, held_out, or those of a dataset by the id of its version; `count`
    of them at most, with one of these numbers of `hops`, each `attempts` times.
    """

    folder: str
    tasks: str
    hops: tuple[int, ...] | None  # None: any
    count: int
    attempts: int
    temperature: float
    seed: str

    @property
    def purpose(self) -> str:
        return "evaluate" if self.tasks == "held_out" else "train"

    def chosen(self, tasks: Sequence[Task], part: int, parts: int) -> list[Task]:
        """The tasks of one of `parts` workers, out of all that there are."""
        fitting = [task for task in tasks if self.hops is None or task.hops in self.hops]
        random.Random(f"play {self.seed}").shuffle(fitting)
        return fitting[: self.count][part::parts]


class Played:
    """What came of a `Play`; a worker adds to its own part, anyone reads all."""

    def __init__(self, storage: RunStorage, folder: str, part: int = 0) -> None:
        self._store = storage.store(folder)
        self._part = part
        self._waiting: list[Trajectory] = []
        self._names = sorted(self._store.names())

    def counts(self) -> Counter[str]:
        """How often each task was played, by its id."""
        return Counter(one.task_id for one in self)

    def add(self, trajectory: Trajectory) -> None:
        self._waiting.append(trajectory)
        if len(self._waiting) == PER_OBJECT:
            self.flush()

    def flush(self) -> None:
        """Put what waits on the storage, durably."""
        if not self._waiting:
            return
        lines = [json.dumps(one.to_dict(), ensure_ascii=False) for one in self._waiting]
        data = zstandard.compress("\n".join(lines).encode("utf-8", "replace"))
        own = sum(name.startswith(f"{self._part:04d}-") for name in self._names)
        name = f"{self._part:04d}-{own:06d}.jsonl.zst"
        self._store.put(name, data)
        self._names.append(name)
        self._waiting = []

    def __iter__(self) -> Iterator[Trajectory]:
        """Everything on the storage, one object in memory at a time, always in the same order."""
        for name in sorted(self._names):
            for line in zstandard.decompress(self._store.get(name)).decode().split("\n"):
                yield Trajectory.from_dict(json.loads(line))
