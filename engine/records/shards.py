"""Trajectory shards: the bytes of many trajectories, one after the other, each readable alone.

The index row of a trajectory carries its byte range and what lists and filters need. How the bytes
of one trajectory are laid out, so that a part of it can be read, says `engine.records.stored`.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from engine.records.stored import StoredTrajectory, encode
from engine.records.trajectory import Trajectory

MAX_SHARD_BYTES = 64 * 2**20


def write_shard(trajectories: Iterable[Trajectory]) -> tuple[bytes, str, list[dict[str, Any]]]:
    """The shard's bytes, its SHA-256 in hex, and one index row per trajectory."""
    parts: list[bytes] = []
    rows: list[dict[str, Any]] = []
    offset = 0
    for trajectory in trajectories:
        part = encode(trajectory)
        rows.append(index_row(trajectory, offset, len(part)))
        parts.append(part)
        offset += len(part)
    blob = b"".join(parts)
    return blob, hashlib.sha256(blob).hexdigest(), rows


def index_row(trajectory: Trajectory, offset: int, length: int) -> dict[str, Any]:
    """What the control plane stores about a trajectory in `offset:offset + length` of its shard."""
    calls = [step.call for step in trajectory.steps if step.call]
    versions = [v for segment in trajectory.segments for v in segment.versions if v >= 0]
    return {
        "id": trajectory.id,
        "task_id": trajectory.task_id,
        "group_id": trajectory.group_id,
        "category": trajectory.category,
        "purpose": trajectory.purpose,
        "prompt": trajectory.prompt[:500],
        "stop_reason": trajectory.stop_reason.value,
        "reward": trajectory.reward.value,
        "success": trajectory.success,
        "steps": len(trajectory.steps),
        "calls": len(calls),
        "failed_calls": sum(call.error is not None for call in calls),
        "sampled_tokens": trajectory.sampled_tokens,
        "tokens": sum(len(segment.ids) for segment in trajectory.segments),
        "version_min": min(versions, default=-1),
        "version_max": max(versions, default=-1),
        "worker": trajectory.worker,
        "started_at": trajectory.started_at,
        "duration_s": trajectory.duration_s,
        "offset": offset,
        "length": length,
    }


def read_trajectory(data: bytes) -> Trajectory:
    """The trajectory in the bytes of its range. Raises DamagedShardError (a ValueError)."""
    return StoredTrajectory(lambda start, length: data[start : start + length], len(data)).whole()
