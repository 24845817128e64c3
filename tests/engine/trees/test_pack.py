"""Packs: bounded, whole groups where they fit, nothing lost."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.trees.build import build_forest
from engine.trees.pack import Pack, deal, make_packs

batches = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 1), min_size=1, max_size=10)),
    min_size=1,
    max_size=14,
)


def arrays(batch: list[tuple[int, list[int]]]) -> list[np.ndarray]:
    return [np.array(ids, dtype=np.int64) for _, ids in batch]


def groups_of(batch: list[tuple[int, list[int]]]) -> list[int]:
    return [group for group, _ in batch]


@given(batches, st.integers(1, 60), st.integers(1, 3), st.booleans())
def test_every_sample_is_in_one_pack_and_no_pack_exceeds_the_bound(
    batch: list[tuple[int, list[int]]], bound: int, ranks: int, merge: bool
) -> None:
    sequences = arrays(batch)
    packs = make_packs(sequences, groups_of(batch), bound, ranks=ranks, merge=merge)
    assert sorted(itertools.chain(*(p.samples for p in packs))) == list(range(len(batch)))
    for pack in packs:
        forest = build_forest([sequences[i] for i in pack.samples], merge=merge)
        assert forest.tokens <= pack.tokens
        assert pack.tokens <= bound or len(pack.samples) == 1


@given(batches, st.integers(1, 60))
def test_a_group_that_fits_is_never_cut(batch: list[tuple[int, list[int]]], bound: int) -> None:
    sequences, groups = arrays(batch), groups_of(batch)
    packs = make_packs(sequences, groups, bound)
    for group in set(groups):
        own = [index for index, other in enumerate(groups) if other == group]
        if build_forest([sequences[i] for i in own]).tokens <= bound:
            assert sum(not set(own).isdisjoint(pack.samples) for pack in packs) == 1


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=2, max_size=7))
def test_a_large_group_is_cut_where_the_least_is_computed_again(ids: list[list[int]]) -> None:
    """Against all ways to cut the sorted samples into runs."""
    sequences = [np.array(one, dtype=np.int64) for one in sorted(ids)]
    bound = 8

    def tokens(run: list[np.ndarray]) -> int:
        return build_forest(run).tokens

    costs = []
    for cuts in itertools.product([False, True], repeat=len(sequences) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(sequences)]
        runs = [tokens(sequences[a:b]) for a, b in itertools.pairwise(edges)]
        if max(runs) <= bound:
            costs.append(sum(runs))
    packs = make_packs(sequences, [0] * len(sequences), bound)
    if tokens(sequences) > bound:
        assert sum(pack.tokens for pack in packs) <= min(costs)


def test_a_sample_beyond_the_bound_is_a_pack_of_its_own_and_whole() -> None:
    sequences = [np.arange(size) for size in (3, 50, 4)]
    packs = make_packs(sequences, [0, 0, 0], 10)
    assert [50 in [len(sequences[i]) for i in pack.samples] for pack in packs].count(True) == 1
    assert max(pack.tokens for pack in packs) == 50


def test_groups_with_equal_beginnings_stand_together() -> None:
    first, second = [7] * 8, [9] * 8
    ids = [first + [1], second + [1], first + [2], second + [2]]
    packs = make_packs([np.array(one) for one in ids], [0, 1, 2, 3], 10)
    assert sorted(sorted(pack.samples) for pack in packs) == [[0, 2], [1, 3]]


def test_ranks_get_like_shares() -> None:
    sequences = [np.full(20, index) for index in range(12)]
    packs = make_packs(sequences, list(range(12)), 2048, ranks=3)
    loads = [sum(pack.tokens for pack in own) for own in deal(packs, 3)]
    assert sum(loads) == 240 and max(loads) <= 100


def test_a_pack_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="0 tokens"):
        make_packs([np.array([1])], [0], 0)


def test_no_rank_is_left_out_of_the_deal() -> None:
    assert deal([Pack([0], 5)], 2) == [[Pack([0], 5)], []]
