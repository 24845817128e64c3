"""Ingest stores every item once, refuses bad ones alone, and keeps attempts apart."""

import gzip
import itertools
import json
import math
import random
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.records.events import MAX_BATCH_BYTES, MAX_BATCH_ITEMS
from tests.webapp.support import Driver, ingest, metrics, start
from webapp.experiments import services
from webapp.experiments.models import Checkpoint, Run, Stage
from webapp.monitoring.ingest import cardinality, parsing, storing
from webapp.monitoring.models import Gap, Point, RunEvent, Series, Writer

pytestmark = pytest.mark.usefixtures("at_ingest")


EXAMPLES = itertools.count()


def send(driver: Driver, *items: Any, **headers: str) -> Any:
    response = ingest("POST", "events", driver.token, {"items": list(items)}, **headers)
    assert response.status_code == 200, response.content
    return response.json()


def stored(run: Run) -> list[tuple[str, int, float, float]]:
    rows = Point.objects.filter(series__run=run).order_by("series__name", "step")
    return list(rows.values_list("series__name", "step", "at", "value"))


def test_it_stores_points_and_the_newest_value(driver: Driver) -> None:
    answer = send(driver, metrics(1, 0, loss=2.0, reward=0.1), metrics(2, 1, loss=1.5))
    assert answer == {"accepted": 2, "duplicates": 0, "rejected": []}
    assert stored(driver.run) == [
        ("loss", 0, 1.7e9 + 1, 2.0),
        ("loss", 1, 1.7e9 + 2, 1.5),
        ("reward", 0, 1.7e9 + 1, 0.1),
    ]
    newest = Series.objects.get(run=driver.run, name="loss")
    assert (newest.last_step, newest.last_value, newest.axis) == (1, 1.5, "trainer_step")


def test_it_stores_a_batch_once(driver: Driver) -> None:
    items = [metrics(1, 0, loss=2.0), metrics(2, 1, loss=1.5)]
    send(driver, *items)
    assert send(driver, *items)["duplicates"] == 2
    assert send(driver, items[1], items[1], metrics(3, 2, loss=1.0)) == {
        "accepted": 1,
        "duplicates": 2,
        "rejected": [],
    }
    assert len(stored(driver.run)) == 3


def test_it_stores_an_item_once_within_one_batch(driver: Driver) -> None:
    log = {"kind": "log", "source": "driver", "seq": 1, "at": 1.0, "text": "hello"}
    assert send(driver, log, log) == {"accepted": 1, "duplicates": 1, "rejected": []}
    assert RunEvent.objects.filter(run=driver.run, kind="log").count() == 1


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), data=st.data())
def test_shuffled_and_doubled_batches_give_the_same_series(
    driver: Driver, seed: int, data: st.DataObject
) -> None:
    chance = random.Random(seed)
    example = next(EXAMPLES)  # the database outlives an example, its numbers are used up
    sources = [f"{example}.{number}" for number in range(3)]
    items = [
        metrics(seq, chance.randrange(12), source, at=float(chance.randrange(1000)), loss=seq)
        for source in sources
        for seq in range(1, 15)
    ]
    # Two writers may give one step at one moment; which of them wins is nobody's promise.
    items = list({(item["step"], item["at"]): item for item in items}.values())
    expected: dict[int, tuple[float, float]] = {}
    for item in items:
        known = expected.get(item["step"], (-1.0, 0.0))
        expected[item["step"]] = max(known, (item["at"], float(item["values"]["loss"])))
    delivered = items + data.draw(st.lists(st.sampled_from(items), max_size=20))
    chance.shuffle(delivered)
    while delivered:
        cut = chance.randrange(1, 8)
        storing.store(driver.token, parsing.parse(json.dumps({"items": delivered[:cut]}).encode()))
        del delivered[:cut]
    points = Point.objects.filter(series__run=driver.run)
    assert {p.step: (p.at, p.value) for p in points} == expected
    series = Series.objects.get(run=driver.run)
    assert series.last_step == max(expected)
    assert (series.last_at, series.last_value) == expected[series.last_step]
    Series.objects.filter(run=driver.run).delete()


def test_it_keeps_three_writers_with_steps_of_their_own(driver: Driver) -> None:
    """A rollout step of 8,000 never hides a trainer step of 3."""
    rollout = {**metrics(1, 8073, "rollout", reward=1.0), "axis": "rollout_step"}
    send(driver, rollout, metrics(1, 3, "trainer", loss=0.5), metrics(1, 0, "eval", score=0.9))
    assert {(s.name, s.axis, s.last_step) for s in Series.objects.filter(run=driver.run)} == {
        ("reward", "rollout_step", 8073),
        ("loss", "trainer_step", 3),
        ("score", "trainer_step", 0),
    }


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_it_stores_what_is_not_finite_as_it_is(driver: Driver, text: str) -> None:
    send(driver, metrics(1, 0, loss=text))
    value = Point.objects.get(series__run=driver.run).value
    assert math.isnan(value) if text == "NaN" else value == float(text)


def test_headlines_hold_the_newest_finite_value(driver: Driver) -> None:
    send(driver, metrics(1, 5, eval__completion_rate=0.7), metrics(2, 3, eval__completion_rate=0.2))
    assert Run.objects.get(pk=driver.run.pk).headline == {"eval/completion_rate": 0.7}
    send(driver, metrics(3, 6, eval__completion_rate="NaN", train__loss="Infinity"))
    assert Run.objects.get(pk=driver.run.pk).headline == {"eval/completion_rate": 0.7}


def test_it_refuses_bad_items_alone(driver: Driver) -> None:
    answer = send(
        driver,
        metrics(1, 0, loss=1.0),
        metrics(2, -1, loss=1.0),
        {"kind": "metrics", "source": "trainer", "seq": 3, "at": 1.0, "step": 1, "values": {}},
        {"kind": "nonsense"},
        "text",
        {**metrics(4, 1, loss=1.0), "surprise": 1},
        metrics(5, 1, at=math.inf, loss=1.0),
        metrics(6, 2, loss=0.5),
    )
    assert answer["accepted"] == 2
    assert [item["index"] for item in answer["rejected"]] == [1, 2, 3, 4, 5, 6]
    assert [item["field"] for item in answer["rejected"]][:2] == ["step", "values"]
    assert all(item["message"] for item in answer["rejected"])
    assert [row[1] for row in stored(driver.run)] == [0, 2]
    # What was refused is not asked for again: its numbers leave no hole.
    assert Writer.objects.get(attempt=driver.attempt, source="trainer").seen == 6


def test_a_number_of_any_size_in_an_event_is_refused_alone(driver: Driver) -> None:
    stage = {"kind": "stage", "source": "d", "at": 1.0, "name": "sft", "state": "running"}
    answer = send(
        driver,
        {**stage, "seq": 1, "index": 2**40},
        {**stage, "seq": 2, "index": 0, "step": -1},
        {**stage, "seq": 3, "index": 0, "step": 2, "steps": 5},
        {**stage, "seq": 4, "index": 0, "summary": {"x": float("nan")}},
    )
    assert [(r["index"], r["field"]) for r in answer["rejected"]][:2] == [(0, "index"), (1, "step")]
    assert Stage.objects.get(attempt=driver.attempt).step == 2


def test_a_run_ends_at_the_last_step_of_its_stages(driver: Driver) -> None:
    before = sum(stage.get("steps", 0) for stage in driver.run.spec["stages"][:1])
    beat = {"phase": "sft", "stage": 1, "step": 2}
    assert ingest("POST", "heartbeat", driver.token, beat).status_code == 200
    stage = {"kind": "stage", "source": "d", "at": 1.0, "name": "sft", "index": 1, "steps": 5}
    send(driver, {**stage, "seq": 1, "state": "done", "step": 5})
    ingest("POST", "finish", driver.token, {"state": "succeeded"})
    assert Run.objects.get(pk=driver.run.pk).step == before + 5


def test_progress_of_a_stage_never_goes_back(driver: Driver) -> None:
    stage = {"kind": "stage", "source": "d", "name": "sft", "index": 0, "steps": 9}
    send(driver, {**stage, "seq": 1, "at": 10.0, "state": "running", "step": 4})
    send(driver, {**stage, "seq": 2, "at": 30.0, "state": "done", "step": 9, "summary": {"a": 1}})
    send(driver, {**stage, "seq": 3, "at": 20.0, "state": "running", "step": 6})
    row = Stage.objects.get(attempt=driver.attempt)
    assert (row.step, row.state, row.summary) == (9, "done", {"a": 1})
    assert row.started_at.timestamp() == 10.0


@pytest.mark.parametrize("text", ["a\0b", "\ud800 alone", "\U0001f42b 駱駝", "<script>"])
def test_any_text_is_kept_as_text(driver: Driver, text: str) -> None:
    send(driver, {"kind": "log", "source": "d", "seq": 1, "at": 1.0, "text": text})
    kept = RunEvent.objects.get(run=driver.run, kind="log").data["text"]
    assert kept.replace("\ufffd", "?") == text.replace("\0", "?").replace("\ud800", "?")


def test_attempts_are_kept_apart(driver: Driver, owner: Any) -> None:
    send(driver, metrics(1, 0, loss=1.0), metrics(2, 1, loss=0.9))
    services.fail_attempt(driver.attempt.pk, "killed")
    services.resume(driver.run.pk, owner)
    second = start(driver.run)
    answer = send(second, metrics(1, 0, loss=5.0))
    assert answer["accepted"] == 1
    found = Point.objects.filter(series__run=driver.run, step=0)
    assert {(p.series.attempt.number, p.value) for p in found} == {(1, 1.0), (2, 5.0)}


def test_a_revoked_token_gets_409_and_an_unknown_one_401(driver: Driver, owner: Any) -> None:
    services.fail_attempt(driver.attempt.pk, "killed")
    for method, path, data in [
        ("POST", "events", {"items": [metrics(1, 0, loss=1.0)]}),
        ("POST", "heartbeat", {"phase": "train", "stage": 0, "step": 0}),
        ("POST", "finish", {"state": "succeeded"}),
        ("PUT", f"blobs/{'0' * 64}", b"x"),
    ]:
        assert ingest(method, path, driver.token, data).status_code == 409, path
        assert ingest(method, path, "cva_unknown", data).status_code == 401, path
        assert ingest(method, path, "", data).status_code == 401, path
    assert not Point.objects.filter(series__run=driver.run).exists()


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_it_takes_compressed_batches(driver: Driver, encoding: str) -> None:
    plain = json.dumps({"items": [metrics(1, 0, loss=1.0)]}).encode()
    body = gzip.compress(plain) if encoding == "gzip" else zstandard.compress(plain)
    response = ingest("POST", "events", driver.token, body, **{"Content-Encoding": encoding})
    assert response.json()["accepted"] == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_small_body_that_grows_is_refused(driver: Driver, encoding: str) -> None:
    bomb = b" " * (MAX_BATCH_BYTES + 1)
    body = gzip.compress(bomb) if encoding == "gzip" else zstandard.compress(bomb)
    response = ingest("POST", "events", driver.token, body, **{"Content-Encoding": encoding})
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"not json", {}, 400),
        (b"[]", {}, 400),
        (b'{"items": 3}', {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"x", {"Content-Encoding": "gzip"}, 400),
        (b"x", {"Content-Encoding": "zstd"}, 400),
        (b"x", {"Content-Encoding": "br"}, 415),
        (json.dumps({"items": [0] * (MAX_BATCH_ITEMS + 1)}).encode(), {}, 413),
        (b" " * (MAX_BATCH_BYTES + 1), {}, 413),
    ],
)
def test_a_malformed_batch_is_refused_as_a_whole(
    driver: Driver, body: bytes, headers: dict[str, str], status: int
) -> None:
    response = ingest("POST", "events", driver.token, body, **headers)
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["detail"]


SMALL = {
    "heartbeat": {"phase": "train", "stage": 0, "step": 0},
    "finish": {"state": "succeeded", "summary": {"text": "x" * 100}},
    "tickets/redeem": {"attempt": "a", "ticket": "t"},
}


@pytest.mark.parametrize("path", SMALL)
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_packed_body_of_any_call_names_the_limit_it_is_over(
    driver: Driver, path: str, encoding: str
) -> None:
    plain = json.dumps(SMALL[path]).encode() + b" " * MAX_BATCH_BYTES
    body = gzip.compress(plain) if encoding == "gzip" else zstandard.compress(plain)
    response = ingest("POST", path, driver.token, body, **{"Content-Encoding": encoding})
    assert response.status_code == 413
    assert f"{MAX_BATCH_BYTES:,} bytes" in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "encoding", "status", "said"),
    [
        (b"x", "gzip", 400, "no gzip"),
        (b"x", "br", 415, "gzip or zstd"),
        (b"not json", "", 400, "no JSON"),
        (b"[" * 100_000, "", 400, "no JSON"),
        (b"[1]", "", 422, "phase: Field required"),
    ],
)
def test_a_malformed_body_of_a_small_call_says_what_is_wrong(
    driver: Driver, body: bytes, encoding: str, status: int, said: str
) -> None:
    response = ingest("POST", "heartbeat", driver.token, body, **{"Content-Encoding": encoding})
    assert response.status_code == status
    assert said in response.json()["detail"]


def test_each_batch_has_a_cursor_of_its_own(driver: Driver) -> None:
    before = Run.objects.get(pk=driver.run.pk).cursor
    send(driver, metrics(1, 0, loss=1.0))
    send(driver, metrics(2, 1, loss=1.0), {**metrics(1, 1, "other"), "values": {"x": 1}})
    assert Run.objects.get(pk=driver.run.pk).cursor == before + 2
    assert set(Point.objects.values_list("series__name", "cursor")) == {
        ("loss", before + 1),
        ("loss", before + 2),
        ("x", before + 2),
    }


def checkpoint(seq: int, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "checkpoint",
        "source": "trainer",
        "seq": seq,
        "at": 1.7e9,
        "stage": 1,
        "step": 10,
        "version": 3,
        "path": "checkpoints/1-10",
        "files": {"model.safetensors": {"size": 3, "sha256": "0" * 64}},
        **fields,
    }


def test_it_registers_checkpoints_once(driver: Driver) -> None:
    send(driver, checkpoint(1), checkpoint(2))
    row = Checkpoint.objects.get(run=driver.run)
    assert (row.step, row.policy_version, row.path) == (10, 3, "checkpoints/1-10")


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../b", "a//b", ".", "a/.", "a\\..\\b", "~", "a\0", ""]
)
def test_a_path_out_of_the_run_is_refused(driver: Driver, path: str) -> None:
    answer = send(driver, checkpoint(1, path=path), checkpoint(2, files={path: {}}))
    assert {item["index"] for item in answer["rejected"]} == {0, 1}
    assert not Checkpoint.objects.exists()


def test_it_records_gaps(driver: Driver) -> None:
    send(
        driver,
        {
            "kind": "gap",
            "source": "d",
            "seq": 1,
            "at": 9.0,
            "what": "thinned",
            "items": 5,
            "since": 1,
        },
    )
    assert Gap.objects.get(run=driver.run).items == 5


def test_devices_are_for_the_sampler(driver: Driver) -> None:
    item = {"kind": "devices", "source": "d", "seq": 1, "at": 1.0, "node": "n", "devices": []}
    assert send(driver, item)["rejected"][0]["field"] == "kind"


def test_names_without_end_are_refused_alone(driver: Driver, monkeypatch: Any) -> None:
    monkeypatch.setattr(cardinality, "MAX_SERIES", 3)
    send(driver, metrics(1, 0, a=1.0, b=1.0))
    wide = {**metrics(4, 1, a=2.0), "axis": "rollout_step"}
    answer = send(
        driver,
        metrics(2, 1, a=2.0, c=2.0),  # the third series
        metrics(3, 1, d=2.0, b=2.0),  # the fourth: refused, whatever else it brings
        wide,  # a known name on another axis is a series of its own
        metrics(5, 2, a=3.0, b=3.0, c=3.0),
    )
    assert answer["accepted"] == 2
    assert [(r["index"], r["field"]) for r in answer["rejected"]] == [(1, "values"), (2, "values")]
    assert "at most 3 series, and 'd' would be one more" in answer["rejected"][0]["message"]
    held = Series.objects.filter(run=driver.run).values_list("name", "last_value")
    assert dict(held) == {"a": 3.0, "b": 3.0, "c": 3.0}
    assert send(driver, metrics(3, 1, d=2.0))["duplicates"] == 1, "it is not asked for again"


def test_each_attempt_has_its_own_room_for_names(
    driver: Driver, owner: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(cardinality, "MAX_SERIES", 1)
    assert send(driver, metrics(1, 0, a=1.0), metrics(2, 0, b=1.0))["accepted"] == 1
    services.fail_attempt(driver.attempt.pk, "killed")
    services.resume(driver.run.pk, owner)
    assert send(start(driver.run), metrics(1, 0, c=1.0))["accepted"] == 1
