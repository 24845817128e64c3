"""Reads of "Try it": the tasks that a run can be tried on, and the trajectory that came of one."""

import io
import json
from dataclasses import dataclass
from typing import Any

import zstandard

from webapp import storage
from webapp.experiments.models import Run
from webapp.reviews.models import Trajectory

MOST_TASKS = 5_000  # read of a file
MOST_BYTES = 64 * 2**20  # of the file, unpacked


@dataclass(frozen=True)
class OneTask:
    """`position` is its place among the run's tasks of this kind, from 0 on."""

    position: int
    category: str
    prompt: str
    answer: str


def tasks_of(run: Run, kind: str = "held_out", search: str = "") -> list[OneTask]:
    """Tasks that the run is judged by (`kind`: held_out or quick) whose category, question or
    answer has each word of `search`. Empty where they are not on the run's storage."""
    words = search.lower().split()
    found = []
    own = (run.spec.get("evaluation") or {}).get("dataset")
    for position, row in enumerate(
        _rows(run, f"{'tasks' if own else 'synthesis'}/{kind}.jsonl.zst")
    ):
        one = OneTask(
            position, *(str(row.get(key, "")) for key in ("category", "prompt", "answer"))
        )
        text = f"{one.category} {one.prompt} {one.answer}".lower()
        if all(word in text for word in words):
            found.append(one)
    return found


def _rows(run: Run, path: str) -> list[dict[str, Any]]:
    try:
        file, _ = storage.open_run_file(run.pk, path)
    except FileNotFoundError:
        return []
    found = []
    with file:
        packed = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        try:
            lines = packed.read(MOST_BYTES).splitlines()
            for line in lines[:MOST_TASKS]:
                row = json.loads(line)
                found.append(row if isinstance(row, dict) else {})
        except (zstandard.ZstdError, ValueError, io.UnsupportedOperation):
            return found
    return found


def is_try(stage: Any) -> bool:
    """Whether a stage plays one task that somebody named."""
    named = ("position", "question")
    return isinstance(stage, dict) and any(stage.get(name) is not None for name in named)


def played_by(run: Run) -> Trajectory | None:
    """What came of the run's one task; of several trials, the first. None: nothing yet."""
    rows = Trajectory.objects.filter(run=run, purpose="evaluate")
    return rows.order_by("cursor", "id").first()
