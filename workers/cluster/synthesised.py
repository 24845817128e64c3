"""What the synthesise stage made, kept on the run's storage and loaded by every actor."""

import json
import random
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from engine.durable import sync_tree, write_whole
from engine.environments.protocol import Task
from engine.records.rows import Learned
from engine.records.trajectory import Reward, Segment, StopReason, Trajectory
from engine.synthesis import Synthesis, Tokenizer
from workers.cluster.storage import RunStorage

FOLDER = "synthesis"
DEMONSTRATIONS, HELD_BACK = "demonstrations.npz", "held_back.npz"
BUCKETED_BATCHES = 16

_DONE = "done.json"  # written last


def save(folder: Path, made: Synthesis) -> dict[str, Any]:
    """Write everything but the graph, which the spec gives again; returns the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    made.tokenizer.save(folder / "tokenizer")
    for name in ("practice", "held_out", "quick"):
        write_tasks(folder, name, getattr(made, name))
    write_demonstrations(folder, made.demonstrations)
    write_demonstrations(folder, made.held_back, HELD_BACK)
    summary = {
        "tasks": len(made.training),
        "held_out": len(made.held_out),
        "quick": len(made.quick),
        "demonstrations": len(made.demonstrations),
        "entities": len(made.graph.kinds),
        "funnels": made.funnels,
    }
    sync_tree(folder, folder)
    write_whole(folder / _DONE, json.dumps(summary).encode())
    return summary


def folder(storage: RunStorage) -> Path:
    """What was synthesised, on this machine. Raises FileNotFoundError where nothing was."""
    found = storage.fetch(FOLDER)
    if found is None:
        raise FileNotFoundError(f"Nothing was synthesised in {storage.place}.")
    return found


def summary_of(folder: Path | None) -> dict[str, Any] | None:
    """The summary of a stage that was finished, None otherwise."""
    if folder is None or not (folder / _DONE).exists():
        return None
    found: dict[str, Any] = json.loads((folder / _DONE).read_text())
    return found


def tasks(folder: Path, name: str) -> list[Task]:
    """`name`: of a set of tasks, such as practice, held_out or quick."""
    with zstandard.open(folder / f"{name}.jsonl.zst", "rt", encoding="utf-8") as file:
        return [Task(**json.loads(line)) for line in file]


def write_tasks(folder: Path, name: str, found: Iterable[Task]) -> None:
    """As `tasks` reads them."""
    with zstandard.open(folder / f"{name}.jsonl.zst", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(vars(one), ensure_ascii=False) + "\n" for one in found)


class Demonstrations:
    """The tokens of all demonstrations and in which order they are learned."""

    def __init__(
        self,
        folder: Path,
        batch_size: int,
        seed: int,
        categories: Collection[str] | None = None,
        name: str = DEMONSTRATIONS,
    ) -> None:
        """categories: of the tasks that are demonstrated; None: all."""
        with np.load(folder / name) as arrays:
            self._ids, self._mask = arrays["ids"], arrays["mask"]
            starts = np.concatenate([[0], np.cumsum(arrays["lengths"])])
            lengths, named = arrays["lengths"], arrays["categories"]
        kept = np.ones(len(lengths), dtype=bool)
        if categories is not None:
            kept = np.isin(named, sorted(categories))
        if not kept.any():
            raise ValueError(f"No demonstration is of {', '.join(sorted(categories or ()))}.")
        self._starts, self._lengths, self._named = starts[:-1][kept], lengths[kept], named[kept]
        self._batch_size = min(batch_size, len(self._lengths))
        self._seed = seed
        self._epoch = (-1, [[0]])

    def batch(self, step: int) -> list[Trajectory]:
        """The batch of a step, counted from 0: the same in every process and after a resume."""
        in_epoch = len(self._lengths) // self._batch_size
        epoch, place = divmod(step, in_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._order(epoch))
        return [self._demonstration(index) for index in self._epoch[1][place]]

    def all(self) -> list[Trajectory]:
        return [self._demonstration(index) for index in range(len(self._lengths))]

    def _order(self, epoch: int) -> list[list[int]]:
        """A shuffled epoch, cut into batches of like length: padding costs time."""
        draw = random.Random(f"demonstrations {self._seed} {epoch}")
        shuffled = list(range(len(self._lengths)))
        draw.shuffle(shuffled)
        batches = []
        window = self._batch_size * BUCKETED_BATCHES
        for start in range(0, len(shuffled), window):
            part = sorted(shuffled[start : start + window], key=lambda i: int(self._lengths[i]))
            for at in range(0, len(part) - self._batch_size + 1, self._batch_size):
                batches.append(part[at : at + self._batch_size])
        draw.shuffle(batches)
        return batches

    def _demonstration(self, index: int) -> Trajectory:
        start, size = int(self._starts[index]), int(self._lengths[index])
        stop = start + size
        segment = Segment(
            ids=self._ids[start:stop].tolist(),
            loss_mask=self._mask[start:stop].tolist(),
            logprobs=[0.0] * size,
            versions=[-1] * size,
        )
        return Trajectory(
            id=str(index),
            task_id="",
            group_id="",
            category=str(self._named[index]),
            prompt="",
            answer="",
            segments=[segment],
            steps=[],
            stop_reason=StopReason.ANSWERED,
            reward=Reward(None, False),
            success=True,
            worker="",
            started_at="",
            duration_s=0.0,
            sampled_tokens=size,
            purpose="demonstration",
        )


def held_back(folder: Path) -> list[Trajectory]:
    """Demonstrations that nothing learns from; empty where none was short enough."""
    with np.load(folder / HELD_BACK) as arrays:
        if not len(arrays["lengths"]):
            return []
    return Demonstrations(folder, 1, 0, name=HELD_BACK).all()


def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder / "tokenizer")


def tokenizer_files(folder: Path) -> dict[str, bytes]:
    """Name -> content, for the folder of a checkpoint."""
    return {path.name: path.read_bytes() for path in (folder / "tokenizer").iterdir()}


def write_demonstrations(
    folder: Path, made: Sequence[Trajectory | Learned], name: str = DEMONSTRATIONS
) -> None:
    """Tokens and masks of all segments, end to end, as `Demonstrations` reads them."""
    segments = [segment for one in made for segment in one.segments]
    np.savez(
        folder / name,
        ids=np.array([i for segment in segments for i in segment.ids], dtype=np.int32),
        mask=np.array([m for segment in segments for m in segment.loss_mask], dtype=np.bool_),
        lengths=np.array([len(segment.ids) for segment in segments], dtype=np.int64),
        categories=np.array([one.category for one in made for _ in one.segments], dtype=np.str_),
    )
