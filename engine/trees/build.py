"""The prefix forest of token sequences: a compressed trie, its nodes runs of tokens.

Sequences are sorted, so that the trie is the walk over neighbours: what a sequence shares with
the one before it is there already, the rest is new. Sorting compares bytes, everything else is
whole-array work, and no node is ever an object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Forest:
    """Nodes in depth-first preorder; sequences keep the order in which they were given.

    ids [tokens]: every distinct prefix once;
    node_lengths, parents [nodes]: tokens of a node, the node that it continues or -1;
    rows: for each sequence, [its tokens]: where in `ids` each of its tokens stands. A sequence may
        end inside a node.
    """

    ids: Ints
    node_lengths: Ints
    parents: Ints
    rows: list[Ints]

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def sequence_tokens(self) -> int:
        """Tokens of all sequences, each counted alone."""
        return sum(map(len, self.rows))

    @cached_property
    def flat_rows(self) -> Ints:
        """`rows` one after the other, [sequence tokens]."""
        return np.concatenate(self.rows)

    @cached_property
    def multiplicity(self) -> Ints:
        """How many sequences run through each token, [tokens]."""
        return np.bincount(self.flat_rows, minlength=self.tokens)


def sort_order(sequences: Sequence[Ints]) -> list[int]:
    """Indices of the sequences in lexicographic order, a prefix before what continues it."""
    keys = [sequence.astype(">u4").tobytes() for sequence in sequences]
    return sorted(range(len(sequences)), key=keys.__getitem__)


def common_prefix(left: Ints, right: Ints) -> int:
    """How many leading tokens are equal."""
    size = min(len(left), len(right))
    different = left[:size] != right[:size]
    return int(different.argmax()) if different.any() else size


def build_forest(sequences: Sequence[Ints], *, merge: bool = True) -> Forest:
    """The forest of non-empty sequences of ids, 0 <= id < 2^32.

    With `merge` False every sequence is a tree of its own, and the order is kept.
    Raises ValueError without sequences and on an empty one.
    """
    if not sequences:
        raise ValueError("A forest needs at least one sequence.")
    if min(map(len, sequences)) == 0:
        empty = next(index for index, sequence in enumerate(sequences) if not len(sequence))
        raise ValueError(f"Sequence {empty} has no tokens; a tree needs at least one.")
    rows: list[Ints] = [sequences[0]] * len(sequences)
    runs: list[Ints] = []
    cuts: dict[int, int] = {}  # start of a node -> the token before it in its own sequence
    end, before, before_rows = 0, sequences[0][:0], sequences[0][:0]
    for index in sort_order(sequences) if merge else range(len(sequences)):
        sequence = sequences[index]
        shared = common_prefix(before, sequence) if merge else 0
        fresh = len(sequence) - shared
        own = np.concatenate([before_rows[:shared], np.arange(end, end + fresh)])
        if fresh:
            last = int(own[shared - 1]) if shared else -1
            if not shared or last != end - 1:  # else it only continues the newest token
                cuts[end] = last
            if shared and last != end - 1:
                cuts.setdefault(last + 1, last)
            runs.append(sequence[shared:])
            end += fresh
        rows[index] = own
        before, before_rows = sequence, own
    starts = np.array(sorted(cuts), dtype=np.int64)
    lasts = np.array([cuts[start] for start in starts.tolist()], dtype=np.int64)
    return Forest(
        ids=np.concatenate(runs),
        node_lengths=np.diff(starts, append=end),
        parents=np.searchsorted(starts, lasts, side="right") - 1,
        rows=rows,
    )
