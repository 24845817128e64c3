"""The spool keeps order and numbers through anything, and gives way instead of blocking."""

import json
import math
import os
import threading

import pytest

from engine.records.events import CheckpointSaved, Log, Metrics, StageChange
from engine.telemetry import spool as spool_module
from engine.telemetry.spool import Spool


def read(spool: Spool) -> list[dict]:
    return [json.loads(line) for path in spool.sealed() for line in path.read_bytes().splitlines()]


def add_metric(spool: Spool, step: int, name: str = "train/loss", value: float = 1.0) -> bool:
    return spool.add(Metrics, step=step, values={name: value})


def test_it_numbers_events_from_one_without_holes(tmp_path):
    spool = Spool(tmp_path, "driver")
    for step in range(5):
        assert add_metric(spool, step)
    assert [event["seq"] for event in read(spool)] == [1, 2, 3, 4, 5]
    assert {event["source"] for event in read(spool)} == {"driver"}


def test_it_writes_strict_json_for_numbers_that_are_not_finite(tmp_path):
    spool = Spool(tmp_path, "driver")
    spool.add(Metrics, step=1, values={"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5})
    (event,) = read(spool)
    assert event["values"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 0.5}
    assert Metrics.model_validate(event).values["b"] == math.inf


def test_it_goes_on_counting_when_opened_again(tmp_path):
    first = Spool(tmp_path, "driver")
    add_metric(first, 1)
    add_metric(first, 2)
    second = Spool(tmp_path, "driver")
    add_metric(second, 3)
    assert [event["seq"] for event in read(second)] == [1, 2, 3]
    for path in second.sealed():
        second.acknowledge(path)
    third = Spool(tmp_path, "driver")
    add_metric(third, 4)
    assert [event["seq"] for event in read(third)] == [4], "also when all was shipped"


def test_one_that_replaces_another_counts_beyond_it_and_ships_what_that_left(tmp_path):
    add_metric(Spool(tmp_path, "rollout-0"), 1)
    second = Spool(tmp_path, "rollout-0", after=1_000)
    add_metric(second, 2)
    assert [event["seq"] for event in read(second)] == [1, 1_001]
    elsewhere = Spool(tmp_path / "elsewhere", "rollout-0", after=1_000)
    add_metric(elsewhere, 2)
    assert [event["seq"] for event in read(elsewhere)] == [1_001]
    again = Spool(tmp_path, "rollout-0", after=1_000)
    add_metric(again, 3)
    assert [event["seq"] for event in read(again)] == [1, 1_001, 1_002]


def test_it_cuts_the_line_that_a_crash_left_half_written(tmp_path):
    spool = Spool(tmp_path, "driver")
    add_metric(spool, 1)
    add_metric(spool, 2)
    (path,) = tmp_path.glob("*.open")
    path.write_bytes(path.read_bytes()[:-10])
    again = Spool(tmp_path, "driver")
    add_metric(again, 3)
    assert [(event["seq"], event["step"]) for event in read(again)] == [(1, 1), (2, 3)]


def test_segments_are_no_larger_than_a_batch(tmp_path):
    spool = Spool(tmp_path, "driver")
    for step in range(2_500):
        add_metric(spool, step)
    sizes = [len(path.read_bytes().splitlines()) for path in spool.sealed()]
    assert sizes == [1000, 1000, 500]


def test_several_threads_lose_and_repeat_nothing(tmp_path):
    spool = Spool(tmp_path, "driver")

    def write() -> None:
        for step in range(300):
            add_metric(spool, step)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event["seq"] for event in read(spool)] == list(range(1, 1201))


def test_it_thins_above_80_percent_and_records_the_gap(tmp_path):
    spool = Spool(tmp_path, "driver", cap_bytes=40_000)
    step = 0
    while spool.fullness < 0.8:
        add_metric(spool, step := step + 1)
    kept = [add_metric(spool, step, "train/loss") for step in range(20)]
    rare = add_metric(spool, 1, "eval/completion_rate")
    assert sum(kept) == 2
    assert rare, "each series is thinned by itself, so that rare ones survive"
    for path in spool.sealed():
        spool.acknowledge(path)
    add_metric(spool, 1)
    after, gap = read(spool)
    assert after["kind"] == "metrics"
    assert gap["kind"] == "gap"
    assert gap["items"] == 18
    assert "thinned" in gap["what"]


def test_full_it_pauses_rollouts_and_keeps_what_cannot_be_told_again(tmp_path):
    spool = Spool(tmp_path, "driver", cap_bytes=20_000)
    while not spool.full:
        spool.add(Log, text="x" * 500)
    assert not add_metric(spool, 1)
    assert not spool.add(Log, text="one more")
    assert spool.add(StageChange, index=0, name="rl", state="done")
    assert spool.add(CheckpointSaved, stage=0, step=1, version=1, path="c", files={})
    for path in spool.sealed():
        spool.acknowledge(path)
    assert not spool.full
    dropped = {gap["what"]: gap["items"] for gap in read(spool)}
    assert dropped == {"metrics: the spool was full": 1, "log: the spool was full": 1}


def test_a_malformed_event_is_counted_and_never_raised(tmp_path):
    spool = Spool(tmp_path, "driver")
    assert not spool.add(Metrics, step=-1, values={"a": 1.0})
    assert not spool.add(Metrics, step=1, values={"<script>": 1.0})
    assert not spool.add(Metrics, stepp=1)
    add_metric(spool, 1)
    gap = read(spool)[-1]
    assert (gap["kind"], gap["what"], gap["items"]) == ("gap", "malformed metrics", 3)


def test_a_disk_that_refuses_is_survived(tmp_path):
    spool = Spool(tmp_path, "driver")
    add_metric(spool, 1)

    class FullDisk:
        name = spool._file.name

        def write(self, data: bytes) -> int:
            return os.write(real, data[:7])  # the disk takes a part, as a full one does

        def truncate(self, size: int) -> int:
            os.truncate(real, size)
            return size

        def close(self) -> None:
            os.close(real)

    real = os.open(spool._file.name, os.O_WRONLY | os.O_APPEND)
    whole = spool._file
    spool._file = FullDisk()
    assert not add_metric(spool, 2)
    assert spool.full
    spool._file = whole
    add_metric(spool, 3)
    assert not spool.full
    events = read(spool)
    assert [event["seq"] for event in events] == [1, 2, 3]
    assert [event["kind"] for event in events] == ["metrics", "metrics", "gap"]
    os.close(real)


def test_it_keeps_a_shard_with_its_rows_and_drops_orphans(tmp_path):
    spool = Spool(tmp_path, "rollout-0")
    assert spool.add_shard(b"shard", "ab" * 32, [{"id": str(i)} for i in range(450)])
    assert [len(event["rows"]) for event in read(spool)] == [200, 200, 50]
    (tmp_path / "blobs" / ("cd" * 32)).write_bytes(b"orphan")
    again = Spool(tmp_path, "rollout-0")
    assert again.blob("ab" * 32) is not None
    assert again.blob("cd" * 32) is None


def test_a_shard_without_room_is_a_gap(tmp_path):
    spool = Spool(tmp_path, "rollout-0", cap_bytes=1000)
    assert not spool.add_shard(b"x" * 900, "ab" * 32, [{"id": "a"}, {"id": "b"}])
    (gap,) = read(spool)
    assert gap["items"] == 2


def test_it_reports_its_bytes_exactly(tmp_path):
    spool = Spool(tmp_path, "rollout-0")
    spool.add_shard(b"x" * 5000, "ab" * 32, [{"id": "a"}])
    for step in range(1500):
        add_metric(spool, step)

    def on_disk() -> int:
        return sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())

    assert spool.fullness * spool.cap_bytes == pytest.approx(on_disk())
    spool.acknowledge(spool.sealed()[0])
    assert spool.fullness * spool.cap_bytes == pytest.approx(on_disk())
    reopened = Spool(tmp_path, "rollout-0")
    assert reopened.fullness * spool.cap_bytes == pytest.approx(on_disk())


def test_limits_agree_with_what_ingest_takes():
    from engine.records.events import MAX_BATCH_BYTES, MAX_BATCH_ITEMS
    from engine.telemetry import shipper

    assert max(1000, spool_module.SEGMENT_ITEMS) <= MAX_BATCH_ITEMS
    assert shipper.MAX_BATCH_BYTES <= MAX_BATCH_BYTES
