"""What is spooled arrives exactly once, whatever ingest does meanwhile."""

import threading
import time

import pytest

from engine.records.events import Log, Metrics, TrainedRows, TrajectoryRows
from engine.telemetry import shipper as shipper_module
from engine.telemetry.connection import Connection
from engine.telemetry.shipper import Shipper
from engine.telemetry.spool import Spool


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(shipper_module, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(shipper_module, "LONGEST_RETRY_S", 0.1)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool", "trainer-0")


def ship(spool: Spool, url: str, timeout_s: float = 5.0, **more) -> Shipper:
    shipper = Shipper(spool, Connection(url, "token", timeout_s), **more)
    shipper.start()
    return shipper


def add(spool: Spool, count: int, start: int = 0) -> None:
    for step in range(start, start + count):
        spool.add(Metrics, step=step, values={"train/loss": 1.0})


def steps(ingest) -> list[int]:
    return [event["step"] for event in ingest.of_kind("metrics")]


def test_everything_arrives_in_order_and_the_disk_is_empty_again(ingest, spool):
    add(spool, 2500)
    shipper = ship(spool, ingest.url)
    assert shipper.close(20)
    assert steps(ingest) == list(range(2500))
    assert spool.fullness == 0
    assert max(len(body["items"]) for path, body in ingest.calls) <= 1000


def test_it_ships_soon_after_something_happens(ingest, spool):
    ship(spool, ingest.url)
    started = time.monotonic()
    add(spool, 1)
    ingest.until(lambda: ingest.events)
    assert time.monotonic() - started < 1.0


def test_it_goes_through_errors_of_the_server(ingest, spool):
    answers = iter([(500, {}), (503, {}), (429, {}), (401, {}), (404, {})])
    ingest.behave = lambda path, body: next(answers, None)
    add(spool, 10)
    assert ship(spool, ingest.url).close(20)
    assert steps(ingest) == list(range(10))


def test_an_answer_that_was_lost_repeats_nothing(ingest, spool):
    stored = threading.Event()

    def store_but_fail(path, body):
        if stored.is_set():
            return None
        stored.set()
        ingest._store(path, body, b"")
        return 502, {}

    ingest.behave = store_but_fail
    add(spool, 10)
    assert ship(spool, ingest.url).close(20)
    assert steps(ingest) == list(range(10))
    assert ingest.duplicates == 10, "the same numbers came again, and count once"


def test_it_survives_an_outage_and_a_server_that_hangs(ingest, spool):
    release = threading.Event()
    hung = threading.Event()

    def hang(path, body):
        if not hung.is_set():
            hung.set()
            release.wait(10)
            return 200, {}
        return None

    ingest.behave = hang
    shipper = ship(spool, ingest.url, timeout_s=0.3)
    add(spool, 5)
    assert hung.wait(10)
    add(spool, 5, start=5)
    ingest.until(lambda: len(steps(ingest)) == 10)
    release.set()
    assert shipper.close(20)
    assert steps(ingest) == list(range(10))


def test_nothing_is_lost_while_nobody_listens(ingest, spool):
    url = ingest.url
    ingest.close()
    shipper = ship(spool, url, timeout_s=0.5)
    add(spool, 5)
    assert not shipper.close(0.5)
    assert sum(len(p.read_bytes().splitlines()) for p in spool.sealed()) == 5


def test_a_revoked_attempt_stops_and_tells_its_driver(ingest, spool):
    ingest.behave = lambda path, body: (409, {"detail": "a newer attempt runs"})
    told = []
    shipper = ship(spool, ingest.url, on_revoked=told.append)
    add(spool, 5)
    shipper.join(10)
    assert shipper.revoked.is_set()
    assert "a newer attempt runs" in told[0]
    assert len(ingest.calls) == 1, "it does not ask again"


def test_what_ingest_rejects_is_a_gap_and_the_rest_arrives(ingest, spool):
    def reject_the_third(path, body):
        if any(item["kind"] == "metrics" for item in body["items"]):
            ingest._store(path, body, b"")
            return 200, {"rejected": [{"index": 2, "field": "values", "message": "too odd"}]}
        return None

    ingest.behave = reject_the_third
    add(spool, 5)
    assert ship(spool, ingest.url).close(20)
    ingest.until(lambda: ingest.of_kind("gap"))
    assert ingest.of_kind("gap")[0]["items"] == 1


@pytest.mark.parametrize("answer", [{}, {"rejected": [{"index": 99}]}, {"rejected": 3}])
def test_an_answer_that_is_not_of_ingest_loses_nothing_and_ends_nothing(ingest, spool, answer):
    answers = iter([(200, answer)])
    ingest.behave = lambda path, body: next(answers, None)
    add(spool, 3)
    shipper = ship(spool, ingest.url)
    ingest.until(lambda: len(steps(ingest)) == 3)
    add(spool, 2, start=3)
    assert shipper.close(20)
    assert steps(ingest) == list(range(5))


def test_it_finds_the_one_event_that_spoils_a_batch(ingest, spool):
    def refuse_long_text(path, body):
        texts = [item.get("text", "") for item in body["items"]]
        return (413, {"detail": "too large"}) if "bad" in texts else None

    ingest.behave = refuse_long_text
    add(spool, 4)
    spool.add(Log, text="bad")
    add(spool, 4, start=4)
    assert ship(spool, ingest.url).close(20)
    assert steps(ingest) == list(range(8))
    assert ingest.of_kind("log") == []
    assert ingest.of_kind("gap")[0]["items"] == 1


def test_a_server_that_refuses_everything_makes_no_storm(ingest, spool):
    ingest.behave = lambda path, body: (400, {"detail": "no"})
    add(spool, 1)
    shipper = ship(spool, ingest.url)
    ingest.until(lambda: len(ingest.calls) == 2)
    assert shipper.close(5)
    assert len(ingest.calls) == 2, "the event, then the gap about it, and no gap about the gap"


@pytest.mark.parametrize("kind", [TrajectoryRows, TrainedRows])
def test_a_shard_arrives_before_its_rows_and_leaves_the_disk(ingest, spool, kind):
    import hashlib

    data = b"shard" * 1000
    name = hashlib.sha256(data).hexdigest()
    spool.add_shard(data, name, [{"id": "a"}], kind)
    failed = []

    def fail_once(path, body):
        if path.startswith("blobs/") and not failed:
            failed.append(path)
            return 500, {}
        return None

    ingest.behave = fail_once
    assert ship(spool, ingest.url).close(20)
    assert ingest.blobs[name] == data
    assert ingest.of_kind(kind.model_fields["kind"].default)[0]["rows"] == [{"id": "a"}]
    assert spool.fullness == 0


def test_it_ships_what_an_earlier_process_left(ingest, tmp_path):
    folder = tmp_path / "left"
    add(Spool(folder, "trainer-0"), 7)
    assert ship(Spool(folder, "trainer-0"), ingest.url).close(20)
    assert steps(ingest) == list(range(7))
