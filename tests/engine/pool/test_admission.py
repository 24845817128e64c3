"""Rules of capacity and staleness, against a simulation that plays the queue out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.advantages import group_centred, group_normalised, leave_one_out
from engine.pool.admission import Wanted, refusal, room, staleness

counts = st.integers(0, 60)


def consumed_after(lag: int, ahead: int, batch: int) -> int:
    """Play it out: staleness of a group behind `ahead` others when its batch is taken.

    The batch in training counts among those ahead and is a version when it is done.
    """
    versions = lag
    while ahead >= batch:
        ahead -= batch
        versions += 1
    return versions


@given(
    batch=st.integers(1, 12),
    limit=st.integers(0, 6),
    lag=st.integers(0, 3),
    busy=st.booleans(),
    waiting=counts,
    in_flight=counts,
    capacity=st.integers(1, 200),
)
def test_it_starts_exactly_what_can_be_consumed_in_time(
    batch, limit, lag, busy, waiting, in_flight, capacity
):
    training = batch if busy else 0
    ahead = training + waiting + in_flight
    expected = 0
    while (
        consumed_after(lag, ahead + expected, batch) <= limit
        and waiting + in_flight + expected < capacity
    ):
        expected += 1
    free = room(
        batch=batch,
        max_staleness=limit,
        capacity=capacity,
        lag=lag,
        training=training,
        waiting=waiting,
        in_flight=in_flight,
    )
    assert free == expected


def test_it_is_synchronous_at_a_limit_of_zero():
    rule = {"batch": 4, "max_staleness": 0, "capacity": 100, "waiting": 0, "in_flight": 0}
    assert room(**rule, lag=0, training=0) == 4
    assert room(**rule, lag=0, training=4) == 0
    assert room(**rule, lag=1, training=0) == 0


def test_staleness_is_exact_and_never_negative():
    assert staleness(7, 3) == 4
    assert staleness(7, 7) == 0
    with pytest.raises(ValueError, match="never go back"):
        staleness(6, 7)


@pytest.mark.parametrize(
    ("rewards", "solved", "lag", "reason"),
    [
        ((0.0, 1.0), 1, 4, None),
        ((0.0, 1.0), 1, 5, "stale"),
        ((1.0, 1.0, 1.0), 3, 0, "all_solved"),
        ((0.0, 0.0, None), 0, 0, "all_failed"),
        ((0.5, 0.5), 1, 0, "zero_variance"),
        ((1.0, None, None), 1, 0, "no_valid_reward"),
        ((None, None), 0, 0, "no_valid_reward"),
        ((1.0,), 1, 0, "no_valid_reward"),
        ((0.0, None, 1.0), 1, 0, None),
        ((1.0, 0.9), 2, 0, None),  # all solved, and their rewards teach which was better
        ((0.1 + 0.2, 0.3), 2, 0, "all_solved"),
        ((1e9 + 1e-6, 1e9), 0, 0, "all_failed"),
        ((0.3, 0.3 + 1e-6), 2, 0, None),
    ],
)
def test_it_names_the_reason_of_a_refusal(rewards, solved, lag, reason):
    assert refusal(rewards, solved, lag, 4, Wanted()) == reason


@pytest.mark.parametrize("rewards", [(1.0,), (1.0, 1.0), (None, None), ()])
def test_rewards_refuse_nothing_where_differences_are_not_what_teaches(rewards):
    free = Wanted(needs_spread=False, needs_reward=False)
    assert refusal(rewards, 0, 1, 2, Wanted()) is not None
    assert refusal(rewards, 0, 1, 2, free) is None
    assert refusal(rewards, 0, 3, 2, free) == "stale"


@given(st.lists(st.none() | st.floats(-5, 5), max_size=8), st.booleans())
def test_what_is_admitted_has_what_the_stage_wants(rewards, needs_spread):
    wanted = Wanted(needs_spread=needs_spread)
    valid = [reward for reward in rewards if reward is not None]
    admitted = refusal(rewards, 0, 0, 4, wanted) is None
    if not needs_spread:
        assert admitted == bool(valid)
    elif admitted:
        assert max(valid) - min(valid) > 1e-8
    else:
        assert len(valid) < 2 or max(valid) - min(valid) < 1e-6


@given(st.lists(st.none() | st.sampled_from([0.0, 1.0]) | st.floats(-1e6, 1e6), max_size=64))
def test_what_is_admitted_for_its_differences_teaches_by_them(rewards):
    if refusal(rewards, 0, 0, 4, Wanted()) is None:
        for estimate in (group_normalised, group_centred, leave_one_out):
            assert any(estimate(rewards))
