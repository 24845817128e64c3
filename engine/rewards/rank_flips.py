"""Rank flips: pairs of one group that two reward schemes put in opposite orders."""

from collections.abc import Callable, Sequence

from engine.rewards.ties import differ


def rank_flips(
    both: Sequence[tuple[float, float]], look: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """(pairs in opposite strict orders, pairs in strict order under the old scheme).

    `both`: each member's reward under the old and the new scheme, finite. `look` is called once for
    each of the n members; the time is O(n log n).

    What differs from a reward on one side is a run at one end of the sorted rewards, whose end only
    moves one way as the reward grows: so ties, which are not transitive, are told as by looking at
    each pair.
    """
    rising = sorted(both)
    new = sorted(after for _, after in rising)
    firsts_above = _firsts_above(new)
    counts = [0] * (len(new) + 1)  # of members by place in `new`, as a tree (Fenwick 1994)
    places = {value: place for place, value in enumerate(new)}  # the last place of equal ones
    flips = ordered = below = 0
    for before, after in rising:
        look()
        while differ(rising[below][0], before) and rising[below][0] < before:
            _add(counts, places[rising[below][1]])
            below += 1
        ordered += below
        flips += below - _count(counts, firsts_above[places[after]])
    return flips, ordered


def _firsts_above(rising: Sequence[float]) -> list[int]:
    """For each value the first place whose value is larger by more than rounding leaves."""
    found, place = [], 0
    for value in rising:
        while place < len(rising) and not (rising[place] > value and differ(rising[place], value)):
            place += 1
        found.append(place)
    return found


def _add(tree: list[int], place: int) -> None:
    place += 1
    while place < len(tree):
        tree[place] += 1
        place += place & -place


def _count(tree: Sequence[int], places: int) -> int:
    """How many were added at the first `places` places."""
    found = 0
    while places:
        found += tree[places]
        places &= places - 1
    return found
