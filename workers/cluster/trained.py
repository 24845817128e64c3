"""What the trainer tells of the tokens that it trained on, where their trajectory is stored."""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.pool.group import Group
from engine.records.events import TrainedRows
from engine.records.trained import write_trained
from engine.spec.sampled import SampledStage
from engine.telemetry.reporter import Reporter

if TYPE_CHECKING:
    from engine.training.token_record import TokenRecord

# torch is imported where it is used: the driver imports the trainer actor and must stay small.


def record_of(stage: SampledStage, groups: Sequence[Group]) -> "TokenRecord | None":
    """A record for a step on these groups; None where the stage wants none.

    Every rank makes the same: which trajectories are recorded depends on their ids alone.
    """
    from engine.training.token_record import TokenRecord

    share = stage.record_tokens
    stored = frozenset[str]().union(*(group.stored for group in groups))
    wanted = {one for one in stored if zlib.crc32(one.encode()) < share * 2**32}
    return TokenRecord(wanted.__contains__) if wanted else None


def report(reporter: Reporter, record: "TokenRecord", step: int, version: int) -> None:
    """step: trainer step of the run; version: of the policy before it."""
    found = record.trained(step, version)
    if found:
        reporter.spool.add_shard(*write_trained(found), TrainedRows)
