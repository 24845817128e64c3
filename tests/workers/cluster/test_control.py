"""The heartbeat: wishes arrive, an outage changes nothing, a revoked attempt learns of it."""

import pytest

from engine.telemetry.connection import Connection
from workers.cluster.control import Control, Latches


@pytest.fixture
def control(ingest):
    control = Control(Connection(ingest.url, "token", timeout_s=2.0), interval_s=0.02)
    yield control
    control.end()


def beats(ingest) -> list[dict]:
    return [body for path, body in ingest.calls if path == "heartbeat"]


def test_it_says_where_the_run_is(ingest, control):
    control.at("rl", 2, 305)
    control.start()
    ingest.until(lambda: beats(ingest))
    assert beats(ingest)[0] == {"phase": "rl", "stage": 2, "step": 305}


def test_it_brings_back_what_people_wish(ingest, control):
    seen = []
    control.on_latches(seen.append)
    control.start()
    ingest.pause_rollouts = True
    assert control.changed.wait(10)
    assert control.latches == Latches(rollouts=True)
    assert seen == [Latches(), Latches(rollouts=True)]
    control.changed.clear()
    ingest.command = "stop"
    assert control.changed.wait(10)
    assert control.wants_end


def test_an_outage_stops_nothing(ingest, control):
    ingest.pause_training = True
    control.start()
    assert control.changed.wait(10)
    ingest.behave = lambda path, body: (503, {})
    count = len(beats(ingest))
    ingest.until(lambda: len(beats(ingest)) > count + 3)
    assert not control.wants_end
    assert control.latches == Latches(training=True), "the last wishes hold"
    ingest.behave = lambda path, body: (401, {})
    count = len(beats(ingest))
    ingest.until(lambda: len(beats(ingest)) > count + 3)
    assert not control.wants_end, "not even a refusal by a broken web tier stops a live run"


def test_what_goes_wrong_in_a_heartbeat_ends_none_that_follow(ingest, control):
    control.on_latches(lambda latches: 1 / 0 if latches.training else None)
    control.start()
    ingest.pause_training = True
    ingest.until(lambda: control.latches.training)
    ingest.command = "stop"
    count = len(beats(ingest))
    ingest.until(lambda: len(beats(ingest)) > count + 3)
    assert control.command == "stop"


def test_a_revoked_attempt_is_told_once_and_beats_no_more(ingest, control):
    ingest.behave = lambda path, body: (409, {"detail": "attempt 2 runs"})
    control.start()
    control.join(10)
    assert "attempt 2 runs" in control.revoked
    assert len(beats(ingest)) == 1
