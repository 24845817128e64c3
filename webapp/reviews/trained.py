"""What training saw of a trajectory: the steps that trained on it, and a turn's tokens there."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine.records.frames import DamagedShardError
from engine.records.trained import COLUMNS, StoredTrained
from webapp import storage
from webapp.monitoring.numbers import encode_optional
from webapp.problems import RefusedError
from webapp.reviews.models import TrainedTokens, Trajectory

MOST_RECORDS = 50


def records_of(row: Trajectory) -> list[TrainedTokens]:
    """The trainer steps that had the trajectory in their batch, the newest first.

    Several where an attempt ended before a checkpoint covered its step, and the next one trained on
    the trajectory again.
    """
    found = TrainedTokens.objects.filter(run=row.run_id, trajectory_id=row.pk)
    newest = found.select_related("attempt").order_by("-attempt__number", "-step")
    return list(newest[:MOST_RECORDS])


def with_newest(rows: Sequence[Trajectory]) -> list[tuple[Trajectory, TrainedTokens | None]]:
    """Trajectories of a run, each with the newest of its `records_of`; one query."""
    found = TrainedTokens.objects.filter(
        run__in={row.run_id for row in rows}, trajectory_id__in=[row.pk for row in rows]
    )
    newest = found.select_related("attempt").order_by("trajectory_id", "-attempt__number", "-step")
    by_id = {one.trajectory_id: one for one in newest.distinct("trajectory_id")}
    return [(row, by_id.get(row.pk)) for row in rows]


def columns_of(record: TrainedTokens, segment: int, start: int, stop: int) -> dict[str, Any]:
    """By column, one entry for each token of a segment: null where it was not trained on. A column
    that is null was not recorded, since the loss used none.

    Raises RefusedError: 410 where the shard is gone, 500 where it is damaged.
    """
    with refusing(record):
        found = opened(record).part(segment, start, stop)
    return {name: _shown(found.get(name)) for name in COLUMNS}


def opened(record: TrainedTokens) -> StoredTrained:
    """Reads parts of a record, within `refusing`."""

    def read(first: int, length: int) -> bytes:
        return storage.read_blob(record.shard, record.offset + first, length)

    return StoredTrained(read, record.length)


@contextmanager
def refusing(record: TrainedTokens) -> Iterator[None]:
    """Raises RefusedError as `columns_of` where a record cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise RefusedError(
            f"The shard {record.shard[:12]}… that says what training saw is no longer in storage.",
            status=410,
        ) from None
    except DamagedShardError as error:
        raise RefusedError(
            f"What training saw of {record.trajectory_id} cannot be read: {error} "
            f"(shard {record.shard[:12]}…).",
            status=500,
        ) from error


def whole(record: TrainedTokens) -> dict[str, Any]:
    """All of a record, as it stands in a line of JSON: `spans` are (segment, start, stop) of the
    trained tokens, `columns` have a number for each of them. `problem`: why it cannot be read."""
    found: dict[str, Any] = {
        "step": record.step,
        "version": record.version,
        "attempt": record.attempt.number,
        "left_out": record.left_out,
    }
    try:
        with refusing(record):
            source = opened(record)
            columns = {name: _shown(values) for name, values in source.all().items()}
            return {**found, "spans": source.spans, "columns": columns}
    except RefusedError as refused:
        return {**found, "problem": refused.detail}


def _shown(values: list[float | None] | None) -> list[Any] | None:
    return None if values is None else [encode_optional(value) for value in values]
