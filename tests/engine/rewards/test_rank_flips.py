"""Rank flips against looking at every pair."""

import random

from hypothesis import given
from hypothesis import strategies as st

from engine.rewards.rank_flips import rank_flips
from engine.rewards.ties import RESIDUE, differ


def naive(both: list[tuple[float, float]]) -> tuple[int, int]:
    flips = ordered = 0
    for place, (old_a, new_a) in enumerate(both):
        for old_b, new_b in both[place + 1 :]:
            in_order = differ(old_a, old_b)
            ordered += in_order
            flips += in_order and differ(new_a, new_b) and (old_a < old_b) != (new_a < new_b)
    return flips, ordered


# Steps of 0.4 of what rounding leaves: neighbours are tied, those three apart are not.
crowded = st.builds(
    lambda at, steps: at + 0.4 * RESIDUE * max(1.0, abs(at)) * steps,
    st.sampled_from([-3e6, -1.0, 0.0, 1.0, 7.5]),
    st.integers(-9, 9),
)
reward = st.one_of(
    st.integers(-2, 2).map(float),
    crowded,
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(st.lists(st.tuples(reward, reward), max_size=40))
def test_it_counts_the_pairs_that_looking_at_each_one_finds(
    both: list[tuple[float, float]],
) -> None:
    assert rank_flips(both) == naive(both)


def test_a_reversed_group_flips_in_every_pair() -> None:
    n = 20_000
    both = [(float(i), float(-i)) for i in range(n)]
    random.Random(0).shuffle(both)
    calls = 0

    def look() -> None:
        nonlocal calls
        calls += 1

    assert rank_flips(both, look) == (n * (n - 1) // 2, n * (n - 1) // 2)
    assert calls == n
