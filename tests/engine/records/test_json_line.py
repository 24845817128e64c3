"""A line of JSON holds what a stored trajectory holds, whoever wrote it and however."""

import json
from functools import partial

import pytest
from hypothesis import given, settings

from engine.records import json_line, stored
from engine.records.frames import DamagedShardError
from engine.records.stored import StoredTrajectory, encode
from engine.records.trajectory import Segment, Trajectory
from tests.engine.records.samples import trajectories
from tests.engine.records.test_shards import long_trajectory


def source_of(trajectory: Trajectory) -> StoredTrajectory:
    data = encode(trajectory)
    return StoredTrajectory(lambda start, length: data[start : start + length], len(data))


def line_of(trajectory: Trajectory) -> bytes:
    return b"".join(piece for piece, _ in json_line.pieces(source_of(trajectory)))


@settings(deadline=None, max_examples=30)
@given(trajectories())
def test_it_holds_all_of_any_trajectory(trajectory):
    line = line_of(trajectory)
    assert b"\n" not in line
    assert json.loads(line) == json.loads(json.dumps(trajectory.to_dict()))


@pytest.mark.parametrize("how", [{"indent": 1}, {"ensure_ascii": True}])
def test_it_writes_anew_what_others_wrote_in_another_way(how, monkeypatch):
    made = long_trajectory(200, "\U0001f600\n" * 9_000)
    made.steps[5].text = "\U0001f600" + "x" * 20_000
    made.steps[6].call.arguments = {"\n": "y" * 20_000}
    given = partial(json.dumps, allow_nan=False)
    monkeypatch.setattr(stored.json, "dumps", lambda value, **_: given(value, **how))
    source = source_of(made)
    monkeypatch.undo()
    line = b"".join(piece for piece, _ in json_line.pieces(source))
    assert b"\n" not in line and b"\\ud83d" not in line
    assert Trajectory.from_dict(json.loads(line)) == made


@pytest.mark.parametrize("ids", [["],[", '"'], [[1], [2]], [{"a": [3]}, 4]])
def test_columns_of_anything_stay_apart(ids):
    made = long_trajectory(1, "ok")
    made.segments = [Segment(ids, [True, False], [-1.0, 0.0], [0, -1], None, ["a", "],["])]
    assert json.loads(line_of(made))["segments"] == [vars(made.segments[0])]


def test_it_can_be_ended_after_every_piece():
    made = long_trajectory(200, "x" * 20_000)
    made.segments.append(Segment([7], [True], [-1.0], [9], 0, ["x"]))
    line = b""
    for piece, closing in json_line.pieces(source_of(made)):
        line += piece
        assert json.loads(line + closing)["id"] == "t1"
    assert closing == b""


def test_what_is_no_json_is_damaged():
    made = long_trajectory(1, "ok")
    source = source_of(made)
    source._raw = lambda where: b"[" * 100_000  # too deep for any parser
    with pytest.raises(DamagedShardError):
        list(json_line.pieces(source))
