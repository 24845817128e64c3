"""A version of a dataset on the run's storage, read as what a stage learns from.

Each row is taken or refused on its own; the stage's summary says how many were, and why.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import zstandard

from engine.environments.protocol import Task
from engine.records.rows import NO_CATEGORY, Learned, RowError, asked, learned, sides
from engine.spec import DpoStage, ExperimentSpec
from engine.synthesis.repair import Pair, PairError, pair_of
from workers.cluster import synthesised
from workers.cluster.storage import RunStorage

T = TypeVar("T")


def file_of(version: str) -> str:
    """Where the rows of a version lie on the run's storage."""
    return f"datasets/{version}.jsonl.zst"


@dataclass
class Reading:
    """How many rows of a version were taken, and why the others were not."""

    version: str
    rows: int = 0
    used: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)  # by reason, the first row's sentence

    def summary(self) -> dict[str, Any]:
        return {
            "dataset": self.version,
            "rows": self.rows,
            "rows_used": self.used,
            "rows_refused": dict(self.refused),
            "refusals": self.examples,
        }


def told(made: dict[str, Any]) -> str:
    """What a stage's summary says of its dataset, in a sentence; then each first refusal."""
    refused = ", ".join(f"{count} {reason}" for reason, count in made["rows_refused"].items())
    said = f"{made['rows_used']} of {made['rows']} rows of dataset version {made['dataset']} are "
    said += f"used; refused: {refused or 'none'}."
    return " ".join([said, *made["refusals"].values()])


def trajectories(
    storage: RunStorage, spec: ExperimentSpec, version: str
) -> tuple[list[Learned], dict[str, Any]]:
    """What the rows of a version of trajectories teach, each once, and the summary."""
    tokenizer = synthesised.tokenizer(synthesised.folder(storage))
    seen: set[tuple[int, ...]] = set()

    def read(row: dict[str, Any]) -> Learned:
        found = learned(row, tokenizer, spec.environment.max_tokens)
        _refuse_again(seen, *(token for segment in found.segments for token in segment.ids))
        return found

    return _take(storage, version, read)


def pairs(
    storage: RunStorage, spec: ExperimentSpec, stage: DpoStage, version: str
) -> tuple[list[Pair], dict[str, Any]]:
    """The pairs of a version, each once and so many of a category at most, and the summary."""
    tokenizer = synthesised.tokenizer(synthesised.folder(storage))
    seen: set[tuple[int, ...]] = set()
    of_class: Counter[str] = Counter()

    def read(row: dict[str, Any]) -> Pair:
        category, chosen, rejected = sides(row, tokenizer, spec.environment.max_tokens)
        try:
            found = pair_of(category, "", chosen, rejected)
        except PairError as error:
            raise RowError("no pair", str(error)) from None
        _refuse_again(seen, *chosen, -1, *rejected)
        if of_class[category] == stage.pairs_per_class:
            raise RowError(
                "over the cap",
                f"There are {stage.pairs_per_class} pairs of the category {category!r} already "
                "(pairs_per_class).",
            )
        of_class[category] += 1
        return found

    return _take(storage, version, read)


def tasks(
    storage: RunStorage, spec: ExperimentSpec, version: str
) -> tuple[list[Task], dict[str, Any]]:
    """The tasks of a version, each once, and the summary."""
    tokenizer = synthesised.tokenizer(synthesised.folder(storage))
    longest = spec.environment.max_tokens - spec.environment.max_turn_tokens
    seen: set[str] = set()

    def read(row: dict[str, Any]) -> Task:
        found = asked(row, tokenizer, longest)
        answer = str(found.answer)
        key = hashlib.sha256(f"{found.prompt}\0{answer}".encode(errors="replace")).hexdigest()[:12]
        if key in seen:
            raise RowError("duplicate", "An earlier row asks the same.")
        seen.add(key)
        return Task(key, found.category or NO_CATEGORY, found.prompt, answer, found.hops or 0)

    return _take(storage, version, read)


def _refuse_again(seen: set[tuple[int, ...]], *ids: int) -> None:
    if ids in seen:
        raise RowError("duplicate", "An earlier row has the same tokens.")
    seen.add(ids)


def _take(
    storage: RunStorage, version: str, read: Callable[[dict[str, Any]], T]
) -> tuple[list[T], dict[str, Any]]:
    reading, found = Reading(version), list[T]()
    for row in _rows(storage, version):
        reading.rows += 1
        try:
            found.append(read(row))
        except RowError as error:
            reading.refused[error.reason] += 1
            reading.examples.setdefault(error.reason, f"Row {reading.rows}: {error}")
    reading.used = len(found)
    return found, reading.summary()


def _rows(storage: RunStorage, version: str) -> Iterator[dict[str, Any]]:
    with (
        storage.borrow(file_of(version)) as path,
        zstandard.open(path, "rt", encoding="utf-8") as file,
    ):
        for line in file:
            yield json.loads(line)
