"""Shards: every trajectory is readable alone, whole or in part, and damage is noticed."""

import hashlib
import json

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.records.frames import DamagedShardError
from engine.records.shards import read_trajectory, write_shard
from engine.records.stored import StoredTrajectory
from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory
from tests.engine.records.samples import trajectories

no_deadline = settings(deadline=None, max_examples=30)


def long_trajectory(steps: int, result: str) -> Trajectory:
    tokens = 20 * steps
    return Trajectory(
        id="t1",
        task_id="task",
        group_id="group",
        category="4 hops",
        prompt="Where?",
        answer="There",
        segments=[
            Segment(
                ids=[i % 1000 for i in range(tokens)],
                loss_mask=[True] * tokens,
                logprobs=[-0.25] * tokens,
                versions=[7] * tokens,
                texts=["wort"] * tokens,
            )
        ],
        steps=[
            Step(
                index=i,
                segment=0,
                start=20 * i,
                stop=20 * i + 12,
                text=f"step {i}",
                call=ToolCall(f"c{i}", "search", {"q": i}, result if i == 3 else "ok", None, 0.1),
            )
            for i in range(steps)
        ],
        stop_reason=StopReason.MAX_CALLS,
        reward=Reward(0.0, True),
        success=False,
        worker="w",
        started_at="2026-01-01T00:00:00+00:00",
        duration_s=1.0,
        sampled_tokens=tokens,
    )


class Range:
    """Serves one byte range and counts what was read of it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.count = data, 0

    def __call__(self, start: int, length: int) -> bytes:
        self.count += length
        return self.data[start : start + length]


@no_deadline
@given(st.lists(trajectories(), max_size=3))
def test_it_gives_back_what_was_written(written):
    blob, digest, rows = write_shard(written)
    assert hashlib.sha256(blob).hexdigest() == digest
    read = [read_trajectory(blob[r["offset"] : r["offset"] + r["length"]]) for r in rows]
    assert read == written


@no_deadline
@given(trajectories(), st.integers(0, 140), st.integers(0, 140))
def test_it_reads_a_window_of_steps_like_a_slice(written, first, count):
    blob, _, _ = write_shard([written])
    stored = StoredTrajectory(Range(blob), len(blob))
    window = stored.steps(first, count)
    expected = written.steps[first : first + count]
    assert [step["index"] for step in window] == [step.index for step in expected]
    for step, whole in zip(window, expected, strict=True):
        if whole.call:
            assert whole.call.result.startswith(step["call"]["result"])
            assert stored.field(whole.index, "result") == whole.call.result


@no_deadline
@given(trajectories(), st.integers(0, 20_000), st.integers(0, 9_000))
def test_it_reads_a_range_of_tokens_like_a_slice(written, start, count):
    blob, _, _ = write_shard([written])
    stored = StoredTrajectory(Range(blob), len(blob))
    for index, segment in enumerate(written.segments):
        part = stored.tokens(index, start, start + count)
        assert part.ids == segment.ids[start : start + count]
        assert part.texts == segment.texts[start : start + count]
        assert part.logprobs == segment.logprobs[start : start + count]


def test_it_reads_little_of_a_very_long_trajectory():
    blob, _, (row,) = write_shard([long_trajectory(10_000, "x" * 20_000_000)])
    source = Range(blob)
    stored = StoredTrajectory(source, row["length"])
    window = stored.steps(0, 50)
    assert len(window) == 50
    assert len(window[3]["call"]["result"]) == 2_000
    assert window[3]["long"]["result"][2] == 20_000_000
    assert source.count < 100_000
    assert len(stored.field(3, "result")) == 20_000_000


def test_it_describes_every_step_in_its_outline():
    written = long_trajectory(100, "found")
    written.steps[5].call.error = "not_found"
    written.steps[99] = Step(99, 0, 1980, 1992, "It is there", answer="there")
    blob, _, _ = write_shard([written])
    outline = StoredTrajectory(Range(blob), len(blob)).outline()
    assert outline["tools"] == ["search"] and outline["errors"] == ["not_found"]
    assert [i for i, error in enumerate(outline["error"]) if error == 0] == [5]
    assert outline["tool"][99] == -1 and outline["answer"][99] is True
    assert {len(outline[name]) for name in outline if name not in ("tools", "errors")} == {100}


def test_it_prints_with_an_ordinary_zstd_reader():
    blob, _, _ = write_shard([long_trajectory(3, "ok")] * 2)
    reader = zstandard.ZstdDecompressor().stream_reader(blob, read_across_frames=True)
    lines = reader.read().decode().splitlines()
    assert sum('"step_count":3' in line for line in lines) == 2


@pytest.mark.parametrize("position", [0, 9, 30, 200, -20])
def test_it_notices_damage(position):
    blob = bytearray(write_shard([long_trajectory(200, "ok")])[0])
    blob[position] ^= 0xFF
    blob[position + 1] ^= 0xFF
    with pytest.raises(DamagedShardError, match="damaged"):
        read_trajectory(bytes(blob))


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_it_notices_a_missing_end(keep):
    blob = write_shard([long_trajectory(200, "ok")])[0]
    with pytest.raises(DamagedShardError):
        read_trajectory(blob[:keep])


def test_it_refuses_a_frame_that_claims_to_be_huge():
    blob = write_shard([long_trajectory(2, "ok")])[0]
    bomb = zstandard.ZstdCompressor(level=1).compress(b" " * (300 * 2**20))
    head = int.from_bytes(blob[8:12], "little")
    forged = blob[:8] + len(bomb).to_bytes(4, "little") + bomb + blob[12 + head :]
    with pytest.raises(DamagedShardError, match="unusual size"):
        read_trajectory(forged)


def test_it_reads_nothing_outside_of_its_own_range():
    blob = write_shard([long_trajectory(2, "ok")])[0]
    size = int.from_bytes(blob[8:12], "little")
    head = json.loads(zstandard.ZstdDecompressor().decompress(blob[12 : 12 + size]))
    for steps in ([[0, len(blob), 10]], [[0, -size - 100, 50]]):
        forged = json.dumps({**head, "steps": steps}).encode()
        part = zstandard.ZstdCompressor().compress(forged)
        bytes_ = blob[:8] + len(part).to_bytes(4, "little") + part + blob[12 + size :]
        stored = StoredTrajectory(Range(bytes_ + b"of another"), len(bytes_))
        with pytest.raises(DamagedShardError, match="points elsewhere"):
            stored.steps(0, 1)
