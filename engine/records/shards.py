"""Trajectory shards: zstd-compressed JSON lines, each trajectory its own frame, so that one can be
read without the rest. The index row carries its byte range and what lists and filters need."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import zstandard

from engine.records.trajectory import Trajectory

MAX_SHARD_BYTES = 64 * 2**20


def write_shard(trajectories: Iterable[Trajectory]) -> tuple[bytes, str, list[dict[str, Any]]]:
    """The shard's bytes, its SHA-256 in hex, and one index row per trajectory."""
    compressor = zstandard.ZstdCompressor(level=3)
    frames: list[bytes] = []
    rows: list[dict[str, Any]] = []
    offset = 0
    for trajectory in trajectories:
        text = json.dumps(trajectory.to_dict(), ensure_ascii=False, allow_nan=False)
        frame = compressor.compress(text.encode())
        rows.append(index_row(trajectory, offset, len(frame)))
        frames.append(frame)
        offset += len(frame)
    blob = b"".join(frames)
    return blob, hashlib.sha256(blob).hexdigest(), rows


def index_row(trajectory: Trajectory, offset: int, length: int) -> dict[str, Any]:
    """What the control plane stores about a trajectory; `offset`, `length` are bytes in the shard."""
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


def read_trajectory(frame: bytes) -> Trajectory:
    """The trajectory in the bytes of its range. Raises ValueError on damaged data."""
    try:
        text = zstandard.ZstdDecompressor().decompress(frame, max_output_size=512 * 2**20)
    except zstandard.ZstdError as error:
        raise ValueError(f"This part of the shard is damaged: {error}") from error
    return Trajectory.from_dict(json.loads(text))
