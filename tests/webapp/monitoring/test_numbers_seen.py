"""Sequence numbers: what was stored is known, in whatever order it came."""

from hypothesis import given
from hypothesis import strategies as st

from webapp.monitoring.ingest.numbers_seen import MAX_RANGES, Seen

batches = st.lists(st.lists(st.integers(1, 80), min_size=1, max_size=20), max_size=15)


@given(batches)
def test_it_knows_exactly_what_was_added(given_batches: list[list[int]]) -> None:
    seen, model = Seen(), set[int]()
    for batch in given_batches:
        assert seen.known(batch) == model & set(batch)
        assert seen.add(batch) == []
        model |= set(batch)
        assert seen.known(list(range(1, 82))) == model
    numbers = {n for start, stop in seen.ranges for n in range(start, stop + 1)}
    assert numbers | set(range(1, seen.upto + 1)) == model
    assert all(b[0] > a[1] + 1 for a, b in zip(seen.ranges, seen.ranges[1:], strict=False))


def test_too_many_holes_are_given_up_from_below() -> None:
    seen = Seen()
    odd = list(range(1, 2 * MAX_RANGES + 7, 2))
    given_up = seen.add(odd)
    assert given_up == [(2, 2), (4, 4)]
    assert seen.upto == 5
    assert len(seen.ranges) == MAX_RANGES
    assert seen.known([2, 4, 6]) == {2, 4}
