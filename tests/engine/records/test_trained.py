"""Records of trained tokens: read back what was written, in parts, and nothing of what was not."""

import struct
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.records import trained as module
from engine.records.frames import DamagedShardError
from engine.records.trained import COLUMNS, StoredTrained, TrainedTokens, write_trained


def opened(data: bytes) -> StoredTrained:
    return StoredTrained(lambda start, length: data[start : start + length], len(data))


def made(masks: list[list[bool]], name: str = "t", **fields) -> tuple[TrainedTokens, dict]:
    """An item of tokens in a loss, and its logprob by (segment, token)."""
    spans, values, expected = [], array("f"), {}
    for segment, mask in enumerate(masks):
        start = None
        for place, kept in enumerate([*mask, False]):
            if kept and start is None:
                start = place
            elif not kept and start is not None:
                spans.append((segment, start, place))
                start = None
            if kept:
                values.append(-0.25 * len(values) - 0.1)
                expected[segment, place] = values[-1]
    passes = array("b", [1 + n % 3 for n in range(len(values))])
    columns = {"logprob": values.tobytes(), "passes": passes.tobytes()}
    return TrainedTokens(name, 9, 4, spans, columns, **fields), expected


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.booleans(), max_size=30), min_size=1, max_size=4), st.data())
def test_any_part_has_what_was_written_and_none_elsewhere(masks, data):
    item, expected = made(masks)
    source = opened(module.encode_trained(item))
    segment = data.draw(st.integers(0, len(masks) - 1))
    start = data.draw(st.integers(0, len(masks[segment])))
    stop = data.draw(st.integers(start, len(masks[segment])))
    part = source.part(segment, start, stop)
    wanted = [expected.get((segment, place)) for place in range(start, stop)]
    assert part["logprob"] == wanted
    assert [value is None for value in part["passes"]] == [value is None for value in wanted]


def test_parts_go_over_the_edges_of_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_TOKENS", 7)
    item, expected = made([[n % 5 != 0 for n in range(100)]])
    source = opened(module.encode_trained(item))
    for start in range(0, 90, 3):
        wanted = [expected.get((0, place)) for place in range(start, start + 10)]
        assert source.part(0, start, start + 10)["logprob"] == wanted


def test_a_shard_indexes_each_of_its_items():
    first, _ = made([[True, False, True]], "a")
    second = TrainedTokens("b", 9, 4, left_out="no_advantage")
    blob, _, rows = write_trained([first, second])
    assert [(row["trajectory"], row["tokens"], row["left_out"]) for row in rows] == [
        ("a", 2, ""),
        ("b", 0, "no_advantage"),
    ]
    for row, item in zip(rows, (first, second), strict=True):
        part = opened(blob[row["offset"] : row["offset"] + row["length"]])
        assert part.columns == list(item.columns)


def test_columns_must_fit_their_tokens():
    with pytest.raises(ValueError, match="logprob of 2 tokens has 4 bytes, not 8"):
        write_trained([TrainedTokens("a", 0, 0, [(0, 1, 3)], {"logprob": b"1234"})])
    with pytest.raises(ValueError, match="no column 'mood'"):
        write_trained([TrainedTokens("a", 0, 0, [], {"mood": b""})])


def test_what_is_not_finite_stays_so():
    values = array("f", [float("inf"), float("nan"), -0.0])
    item = TrainedTokens("a", 0, 0, [(0, 0, 3)], {"weight": values.tobytes()})
    found = opened(module.encode_trained(item)).part(0, 0, 3)["weight"]
    assert found[0] == float("inf") and found[1] != found[1] and found[2] == 0


@pytest.mark.parametrize("at", range(0, 60, 5))
def test_damage_is_noticed(at):
    item, expected = made([[True] * 40])
    data = bytearray(module.encode_trained(item))
    data[at] ^= 0xFF
    with pytest.raises(DamagedShardError):
        opened(bytes(data)).part(0, 0, 40)


def test_a_cut_or_foreign_record_is_refused():
    data = module.encode_trained(made([[True] * 40])[0])
    for bad in (b"", b"CVT2" + data[4:], data[:-3], struct.pack("<4sI", b"CVT1", 2**31)):
        with pytest.raises(DamagedShardError):
            opened(bad).part(0, 0, 40)


def test_every_type_has_the_size_that_other_machines_expect():
    assert {array(kind).itemsize for kind in COLUMNS.values() if kind == "f"} == {4}
    assert {array(kind).itemsize for kind in COLUMNS.values() if kind == "b"} == {1}
