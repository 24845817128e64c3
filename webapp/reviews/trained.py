"""What training saw of a trajectory: the steps that trained on it, and a turn's tokens there."""

from typing import Any

from engine.records.stored import DamagedShardError
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


def columns_of(record: TrainedTokens, segment: int, start: int, stop: int) -> dict[str, Any]:
    """By column, one entry for each token of a segment: null where it was not trained on. A column
    that is null was not recorded, since the loss used none.

    Raises RefusedError: 410 where the shard is gone, 500 where it is damaged.
    """

    def read(first: int, length: int) -> bytes:
        return storage.read_blob(record.shard, record.offset + first, length)

    try:
        found = StoredTrained(read, record.length).part(segment, start, stop)
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
    return {name: _shown(found.get(name)) for name in COLUMNS}


def _shown(values: list[float | None] | None) -> list[Any] | None:
    return None if values is None else [encode_optional(value) for value in values]
