"""The gate keeps the shares, waits no longer than it may, and says why it waited."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from engine.pool.gate import Gate

A, B = "3 hops", "4 hops"


def test_it_takes_the_oldest_when_there_are_no_shares():
    assert Gate({}, 30).decide([A, B, A, A], 3, now=0).take == [0, 1, 2]


def test_it_passes_over_what_is_above_its_share():
    decision = Gate({A: 0.5, B: 0.5}, 30).decide([A, A, A, B, A, B], 4, now=0)
    assert decision.take == [0, 1, 3, 5]
    assert decision.text == ""


def test_it_waits_and_says_afterwards_how_long_and_why():
    gate = Gate({A: 0.5, B: 0.5}, max_wait_s=30)
    waiting = [B] * 5 + [A] * 2
    assert gate.decide(waiting, 7, now=100.0).take is None
    decision = gate.decide([*waiting, A, A], 7, now=112.0)
    assert decision.take is not None
    assert decision.waited_s == 12.0
    assert decision.text == "training waited 12 s: 4 hops 71% > 50%"


def test_a_short_wait_is_told_in_tenths():
    gate = Gate({A: 0.5, B: 0.5}, max_wait_s=30)
    assert gate.decide([A, A], 2, now=0.0).take is None
    assert gate.decide([A, B], 2, now=9.94).text == "training waited 9.9 s: 3 hops 100% > 50%"


def test_it_goes_on_after_the_longest_wait():
    gate = Gate({A: 0.5, B: 0.5}, max_wait_s=30)
    assert gate.decide([A, A, A, B], 4, now=0.0).take is None
    assert gate.decide([A, A, A, B], 4, now=29.9).take is None
    decision = gate.decide([A, A, A, B, A], 4, now=30.0)
    assert decision.take == [0, 1, 2, 3]
    assert decision.text == "training went on after 30 s: 3 hops 75% > 50%"
    assert gate.decide([A, A, B, B], 4, now=40.0).text == "", "the wait starts afresh"


def test_it_names_the_category_that_is_furthest_over_its_share():
    gate = Gate({A: 0.7, B: 0.05}, max_wait_s=0)
    assert gate.decide([A] * 8 + [B] * 2, 10, now=0.0).text.endswith("4 hops 20% > 5%")


def test_a_pause_spends_none_of_the_wait():
    gate = Gate({A: 0.5, B: 0.5}, max_wait_s=30)
    gate.decide([A, A, A], 2, now=0.0)
    gate.forget_wait(now=20.0)
    assert gate.decide([A, A, A], 2, now=40.0).take is None


def test_it_counts_no_wait_for_a_batch_that_is_not_full():
    gate = Gate({A: 1.0}, max_wait_s=1)
    assert gate.decide([A], 2, now=0.0).take is None
    assert gate.decide([A, A], 2, now=50.0).waited_s == 0.0


def test_it_starts_what_is_furthest_below_its_share():
    gate = Gate({A: 0.25, B: 0.75}, 30)
    assert gate.next_category({A: 1, B: 2}) == B
    assert gate.next_category({A: 1, B: 4}) == A
    assert Gate({A: 0.5, B: 0.5}, 30).next_category({A: 1}) == B, "of which there is none"
    assert Gate({A: 0.0, B: 1.0}, 30).next_category({}) == B, "what may have no share never"
    assert Gate({}, 30).next_category({A: 1}) is None


@given(
    categories=st.lists(st.sampled_from([A, B]), max_size=40),
    batch=st.integers(1, 20),
    share=st.floats(0.0, 1.0),
)
def test_a_batch_is_full_in_order_within_its_shares_or_not_taken(categories, batch, share):
    gate = Gate({A: share, B: 1 - share}, max_wait_s=30)
    take = gate.decide(categories, batch, now=0).take
    enough = sum(min(Counter(categories)[c], gate.limit(c, batch)) for c in (A, B)) >= batch
    assert (take is not None) == enough
    if take is not None:
        assert len(take) == batch
        assert take == sorted(set(take))
        taken = Counter(categories[index] for index in take)
        assert all(taken[c] <= gate.limit(c, batch) for c in taken)
