"""What training saw of a turn: aligned with its tokens, and nothing where nothing was recorded."""

import io
import json
from array import array

import pyarrow.parquet
import pytest

from engine.records import trajectory as records
from engine.records.trained import TrainedTokens, write_trained
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import downloaded
from webapp import storage
from webapp.reviews.models import TrainedTokens as Stored

API = "/api/v1"


@pytest.fixture
def row(store):
    return store([trajectory(name="t0")])[0]


def trained_positions(one) -> list[int]:
    return [place for place, kept in enumerate(one.segments[0].loss_mask) if kept]


def record(row, step=5, attempt=None, values=lambda place: -place / 8, **fields):
    """Store a record whose log-probability tells the place of its token."""
    one = trajectory(name=row.pk)
    places = trained_positions(one)
    spans = [(0, turn.start, turn.stop) for turn in one.steps if not turn.detour]
    columns = {
        "logprob": array("f", [values(place) for place in places]).tobytes(),
        "clipped": array("b", [place % 3 - 1 for place in places]).tobytes(),
    }
    blob, shard, rows = write_trained([TrainedTokens(row.pk, step, 4, spans, columns, **fields)])
    storage.put_blob(blob)
    del rows[0]["trajectory"]
    attempt = attempt or row.attempt
    return Stored.objects.create(
        run=row.run, attempt=attempt, trajectory_id=row.pk, shard=shard, **rows[0]
    )


@pytest.fixture
def get(as_user, viewer, row):
    client = as_user(viewer)

    def of(step=0, query=""):
        answer = client.get(f"{API}/trajectories/{row.pk}/steps/{step}/trained{query}")
        return answer.status_code, answer.json()

    return of


def test_a_run_of_before_has_nothing_recorded(get):
    status, found = get()
    assert status == 200
    assert found["records"] == [] and found["columns"] is None and found["record"] is None


def test_columns_are_aligned_with_the_tokens_of_the_turn(get, row):
    record(row)
    for turn in trajectory().steps:
        _, found = get(turn.index)
        assert (found["start"], found["stop"]) == (turn.start, turn.stop)
        logprobs = found["columns"]["logprob"]
        if turn.detour:  # masked: the loss saw none of it
            assert logprobs == [None] * (turn.stop - turn.start)
            continue
        assert logprobs == [-place / 8 for place in range(turn.start, turn.stop)]
        assert found["columns"]["clipped"] == [
            place % 3 - 1 for place in range(turn.start, turn.stop)
        ]
        assert found["columns"]["advantage"] is None  # the loss used none: not zero


def test_numbers_that_are_not_finite_are_told_as_words(get, row):
    record(row, values=lambda place: float("inf"))
    assert set(get()[1]["columns"]["logprob"]) == {"Infinity"}


def test_of_several_steps_the_newest_is_shown_and_each_can_be(get, row):
    record(row, step=5)
    record(row, step=9, values=lambda place: -1.0)
    _, found = get()
    assert [one["step"] for one in found["records"]] == [9, 5]
    assert found["record"] == 0 and set(found["columns"]["logprob"]) == {-1.0}
    _, older = get(query="?record=1")
    assert older["columns"]["logprob"][1] != -1.0
    assert get(query="?record=2")[0] == 422
    assert get(query="?record=-1")[0] == 422


def test_what_was_left_out_says_why(get, row):
    blob, shard, rows = write_trained([TrainedTokens(row.pk, 5, 4, left_out="no_advantage")])
    storage.put_blob(blob)
    del rows[0]["trajectory"]
    Stored.objects.create(
        run=row.run, attempt=row.attempt, trajectory_id=row.pk, shard=shard, **rows[0]
    )
    _, found = get()
    assert found["records"][0]["left_out"] == "no_advantage"
    assert set(found["columns"].values()) == {None}


def test_a_record_of_another_run_under_the_same_name_is_not_shown(get, row, launch):
    other = launch()
    stray = record(row)
    Stored.objects.filter(pk=stray.pk).update(run=other)
    assert get()[1]["records"] == []


def test_a_lost_or_damaged_shard_is_said(get, row):
    found = record(row)
    Stored.objects.filter(pk=found.pk).update(offset=1)
    status, problem = get()
    assert status == 500 and "cannot be read" in problem["detail"]
    Stored.objects.filter(pk=found.pk).update(shard="0" * 64)
    status, problem = get()
    assert status == 410 and "no longer in storage" in problem["detail"]


@pytest.mark.django_db(transaction=True)
def test_exports_hold_the_newest_record(as_user, viewer, row, store):
    record(row, step=4)
    newest = record(row, step=5)
    store([trajectory(name="t1", prompt="untrained")])
    client = as_user(viewer)
    path = f"{API}/runs/{row.run_id}/trajectories/export"
    lines = downloaded(client.get(path)).splitlines()
    by_id = {line["id"]: line for line in map(json.loads, lines)}
    assert "trained" not in by_id["t1"]
    found = by_id["t0"]["trained"]
    places = trained_positions(trajectory(name="t0"))
    assert (found["step"], found["version"], found["left_out"]) == (5, newest.version, "")
    assert found["columns"]["logprob"] == [-place / 8 for place in places]
    assert set(found["columns"]) == {"logprob", "clipped"}
    assert [place for _, start, stop in found["spans"] for place in range(start, stop)] == places
    assert records.Trajectory.from_dict(by_id["t0"]) == trajectory(name="t0")

    data = downloaded(client.get(f"{path}?format=parquet"))
    rows = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    kept = trajectory(name="t0").segments[0].loss_mask
    for got in rows:
        if got["trajectory_id"] == "t1":
            assert got["trained_step"] is None and got["trained_logprob"] is None
            continue
        step = trajectory(name="t0").steps[got["step"]]
        wanted = range(step.start, step.stop)
        seen = [-place / 8 if kept[place] else None for place in wanted]
        assert (got["trained_step"], got["trained_logprob"]) == (5, seen)
        clipped = [place % 3 - 1 if kept[place] else None for place in wanted]
        assert got["trained_clipped"] == clipped and got["trained_entropy"] is None


@pytest.mark.django_db(transaction=True)
def test_an_export_says_of_a_record_that_it_cannot_be_read(as_user, viewer, row):
    storage.remove_blob(record(row).shard)
    client = as_user(viewer)
    line = json.loads(downloaded(client.get(f"{API}/trajectories/{row.pk}/export")))
    assert "no longer in storage" in line["trained"]["problem"] and len(line["steps"]) > 1
    data = downloaded(client.get(f"{API}/trajectories/{row.pk}/export?format=parquet"))
    rows = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    assert len(rows) == len(line["steps"])
    for got in rows:
        assert "no longer in storage" in got["trained_problem"] and got["problem"] == ""


def test_there_is_no_such_step(get):
    assert get(99)[0] == 422
