"""Which samples share a pass: packs bounded in tokens, groups whole where they fit.

A pack is one micro-batch. Its size is that of its forest: a shared prefix counts once. What is cut
apart computes the prefix again in each part; nothing is ever truncated, so that a single sample
beyond the bound is a pack of its own.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.trees.build import Ints, common_prefix, sort_order


@dataclass
class Pack:
    """Indices of samples, neighbours sharing prefixes, and the tokens of their forest, at most."""

    samples: list[int]
    tokens: int


def make_packs(
    sequences: Sequence[Ints],
    groups: Sequence[Hashable],
    bound: int,
    *,
    ranks: int = 1,
    merge: bool = True,
) -> list[Pack]:
    """Packs of at most `bound` distinct tokens each; every sample is in exactly one.

    `groups` names the group of each sample. A group beyond the bound is cut along its sub-trees,
    where the prefix to compute again is shortest. Groups that share a prefix, such as the
    instructions of all tasks, stand together. With several ranks packs are small enough for each
    to get some. With `merge` False nothing is shared and prefixes count each time.
    """
    if bound < 1:
        raise ValueError(f"A pack may hold {bound} tokens; give at least 1.")
    members: dict[Hashable, list[int]] = {}
    for index in sort_order(sequences) if merge else range(len(sequences)):
        members.setdefault(groups[index], []).append(index)
    parts = [part for group in members.values() for part in _parts(sequences, group, bound, merge)]
    fill = min(bound, -(-sum(part.tokens for part in parts) // ranks))
    packs: list[Pack] = []
    for part in parts:
        if packs:
            shared = _shared(sequences, packs[-1].samples[-1], part.samples[0], merge)
            tokens = packs[-1].tokens + part.tokens - shared
            if tokens <= fill:
                packs[-1] = Pack(packs[-1].samples + part.samples, tokens)
                continue
        packs.append(part)
    return packs


def deal(packs: Sequence[Pack], ranks: int) -> list[list[Pack]]:
    """The packs of each rank: the largest first, to whoever has the fewest tokens."""
    dealt: list[list[Pack]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for pack in sorted(packs, key=lambda pack: -pack.tokens):
        rank = loads.index(min(loads))
        dealt[rank].append(pack)
        loads[rank] += pack.tokens
    return dealt


def _parts(sequences: Sequence[Ints], group: list[int], bound: int, merge: bool) -> list[Pack]:
    """The group, sorted, in runs of at most `bound` tokens that compute the fewest tokens again."""
    lengths = [len(sequences[index]) for index in group]
    shared = [0, *(_shared(sequences, *pair, merge) for pair in pairwise(group))]

    def tokens_of(start: int, stop: int) -> int:
        return sum(lengths[start:stop]) - sum(shared[start + 1 : stop])

    if tokens_of(0, len(group)) <= bound:
        return [Pack(group, tokens_of(0, len(group)))]
    cheapest, run_start = [0], [0]  # of the first i samples; where the run before i starts
    for last in range(len(group)):
        tokens, choices = 0, []
        for start in range(last, -1, -1):
            tokens += lengths[start] - (shared[start + 1] if start < last else 0)
            if tokens > bound and start < last:
                break
            choices.append((cheapest[start] + shared[start], start))
        cost, start = min(choices)
        cheapest.append(cost)
        run_start.append(start)
    parts: list[Pack] = []
    stop = len(group)
    while stop:
        start = run_start[stop]
        parts.append(Pack(group[start:stop], tokens_of(start, stop)))
        stop = start
    return parts[::-1]


def _shared(sequences: Sequence[Ints], left: int, right: int, merge: bool) -> int:
    return common_prefix(sequences[left], sequences[right]) if merge else 0
