"""Index rows of what the loss saw of trajectories' tokens."""

from pydantic import BaseModel, ConfigDict, Field

from engine.records.events import TrainedRows
from engine.records.trained import LeftOut
from webapp.monitoring.ingest.parsing import Batch
from webapp.monitoring.ingest.rows import INT, readable
from webapp.reviews.models import TrainedTokens, Trajectory


class TrainedRow(BaseModel):
    """What a row must be to be stored; see `engine.records.trained.write_trained`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    trajectory: str = Field(min_length=1, max_length=40, pattern=r"^[\w.-]+$")
    step: int = Field(ge=0, lt=2**53)
    version: int = Field(ge=-1, lt=INT)
    tokens: int = Field(ge=0, lt=INT)
    left_out: LeftOut = ""
    offset: int = Field(ge=0, lt=2**63)
    length: int = Field(ge=1, lt=2**63)


def store_trained(
    run_id: str, attempt_id: str, given: list[tuple[int, TrainedRows]], batch: Batch
) -> None:
    """Store rows once; an item with a bad row, a shard of others or a foreign id is rejected.

    The trajectories may come later, or never.
    """
    rows: list[TrainedTokens] = []
    for index, item, found in readable(run_id, TrainedRow, given, batch):
        names = [row.trajectory for row in found]
        if Trajectory.objects.filter(pk__in=names).exclude(run_id=run_id).exists():
            batch.reject(index, item, "rows.trajectory", "Another run has this trajectory.")
            continue
        rows += [
            TrainedTokens(
                run_id=run_id,
                attempt_id=attempt_id,
                trajectory_id=row.trajectory,
                shard=item.shard,
                **row.model_dump(exclude={"trajectory"}),
            )
            for row in found
        ]
    TrainedTokens.objects.bulk_create(rows, ignore_conflicts=True)
