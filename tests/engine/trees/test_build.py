"""The prefix forest against a trie of dictionaries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.tree.layout import TreeLayout
from engine.trees.build import Forest, build_forest

sequence_lists = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12
)


def forest_of(sequences: list[list[int]], **options: bool) -> Forest:
    return build_forest([np.array(one, dtype=np.int64) for one in sequences], **options)


def distinct_prefixes(sequences: list[list[int]]) -> set[tuple[int, ...]]:
    return {tuple(one[:size]) for one in sequences for size in range(1, len(one) + 1)}


@given(sequence_lists)
def test_it_holds_every_distinct_prefix_once(sequences: list[list[int]]) -> None:
    forest = forest_of(sequences)
    expected = distinct_prefixes(sequences)
    assert forest.tokens == len(expected)
    place = {}
    for sequence, rows in zip(sequences, forest.rows, strict=True):
        assert forest.ids[rows].tolist() == sequence
        for size in range(1, len(sequence) + 1):
            assert place.setdefault(tuple(sequence[:size]), rows[size - 1]) == rows[size - 1]
    assert sorted(place.values()) == list(range(forest.tokens))


@given(sequence_lists, st.booleans())
def test_its_nodes_are_a_preorder_whose_paths_are_the_sequences(
    sequences: list[list[int]], merge: bool
) -> None:
    forest = forest_of(sequences, merge=merge)
    layout = TreeLayout.build(forest.node_lengths.tolist(), forest.parents.tolist())
    for rows in forest.rows:
        assert layout.positions[rows].tolist() == list(range(len(rows)))
        assert layout.previous[rows].tolist() == [-1, *rows[:-1]]


@given(sequence_lists)
def test_a_node_ends_only_where_something_forks_or_ends(sequences: list[list[int]]) -> None:
    forest = forest_of(sequences)
    children = np.bincount(forest.parents[forest.parents >= 0], minlength=len(forest.parents))
    assert not (children == 1).any()


@given(sequence_lists)
def test_multiplicity_counts_the_sequences_through_a_prefix(sequences: list[list[int]]) -> None:
    forest = forest_of(sequences)
    counts = forest.multiplicity
    for sequence, rows in zip(sequences, forest.rows, strict=True):
        for size in range(1, len(sequence) + 1):
            through = sum(other[:size] == sequence[:size] for other in sequences)
            assert counts[rows[size - 1]] == through
    assert counts.sum() == forest.sequence_tokens


def test_without_merging_every_sequence_stands_alone_in_its_order() -> None:
    forest = forest_of([[2, 1], [1], [2, 1]], merge=False)
    assert forest.parents.tolist() == [-1, -1, -1]
    assert forest.node_lengths.tolist() == [2, 1, 2]
    assert forest.ids.tolist() == [2, 1, 1, 2, 1]


def test_turns_that_continue_each_other_are_one_node() -> None:
    history = list(range(100))
    forest = forest_of([history[:size] for size in (10, 40, 70, 100)])
    assert forest.node_lengths.tolist() == [100]
    assert forest.parents.tolist() == [-1]


def test_ids_are_told_apart_beyond_one_byte() -> None:
    forest = forest_of([[256, 1], [1, 256], [256, 2]])
    assert forest.tokens == 5


@pytest.mark.parametrize("sequences, words", [([], "at least one sequence"), ([[1], []], "1 has")])
def test_nothing_to_merge_is_refused(sequences: list[list[int]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        forest_of(sequences)
