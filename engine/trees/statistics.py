"""What sharing prefixes saved in a batch, and the batch's forest in few numbers, for people."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.planner.architecture import Architecture, Lightning
from engine.planner.flops import Convention, pair_flops
from engine.planner.parameters import parameters
from engine.records.trajectory import Trajectory
from engine.trees.build import Forest, Ints, build_forest

MOST_NODES = 400
MOST_LABEL = 160  # characters


@dataclass(frozen=True)
class Work:
    """What one pass computes: tokens; (query, key) pairs of a softmax layer; rows of the head."""

    tokens: float
    pairs: float
    edges: float


@dataclass(frozen=True)
class Cost:
    """FLOPs of forward and backward for each unit of `Work`."""

    token: float
    pair: float
    edge: float

    @staticmethod
    def of(model: Architecture) -> "Cost":
        """Scores and logits are computed again in the backward pass, as our kernels do.

        Lightning costs H(14Cd + 12d^2) a token, see `engine.planner.flops`.
        """
        counted = parameters(model)
        head = model.width * model.vocab_size
        lightning = sum(
            mixer.heads * (14 * mixer.chunk * mixer.head_dim + 12 * mixer.head_dim**2)
            for layer in model.layers
            if isinstance(mixer := layer.mixer, Lightning)
        )
        pair = sum(sum(pair_flops(layer.mixer, Convention.MULTI_HEAD)) for layer in model.layers)
        return Cost(
            token=6.0 * (counted.in_products - head) + lightning, pair=3.5 * pair, edge=8.0 * head
        )

    def flops(self, work: Work) -> float:
        return self.token * work.tokens + self.pair * work.pairs + self.edge * work.edges


def sharing(alone: Work, merged: Work, cost: Cost) -> dict[str, float]:
    """Figures of a step: its samples each alone against what was computed.

    Memory is that of the activations kept for the backward pass, were the batch in memory at once:
    it grows with the tokens.
    """
    return {
        "tree_token_ratio": alone.tokens / merged.tokens,
        "tree_saved_flops_share": 1 - cost.flops(merged) / cost.flops(alone),
        "tree_saved_memory_share": 1 - merged.tokens / alone.tokens,
    }


@dataclass(frozen=True)
class Icicle:
    """The largest nodes of a forest in preorder, by column; closed under parents.

    tokens: length of a node; samples: how many run through its start; label: index into `labels`,
    -1 where samples of different labels meet. `nodes` counts all, shown or not.
    """

    parents: list[int]
    tokens: list[int]
    samples: list[int]
    label: list[int]
    labels: list[str]
    nodes: int
    total_tokens: int
    sample_tokens: int


def icicle(forest: Forest, labels: Sequence[str], most: int = MOST_NODES) -> Icicle:
    """The `most` nodes with the most sample tokens in and below them; `labels`: one a sample."""
    starts = np.cumsum(forest.node_lengths) - forest.node_lengths
    samples = forest.multiplicity[starts]
    names = sorted(set(labels))
    number = {name: index for index, name in enumerate(names)}
    lowest, highest = _labels_through(forest, starts, [number[label] for label in labels])

    below = np.add.reduceat(forest.multiplicity, starts)
    for node in range(len(below) - 1, -1, -1):
        if (parent := forest.parents[node]) >= 0:
            below[parent] += below[node]
    kept = np.sort(np.lexsort((np.arange(len(below)), -below))[:most])
    place = np.full(len(below) + 1, -1)
    place[kept] = np.arange(len(kept))
    label = np.where(lowest == highest, lowest, -1)[kept]
    used = np.unique(label[label >= 0])
    return Icicle(
        parents=place[forest.parents[kept]].tolist(),
        tokens=forest.node_lengths[kept].tolist(),
        samples=samples[kept].tolist(),
        label=np.where(label >= 0, np.searchsorted(used, label), -1).tolist(),
        labels=[names[index] for index in used],
        nodes=len(below),
        total_tokens=forest.tokens,
        sample_tokens=forest.sequence_tokens,
    )


def batch_icicle(groups: Sequence[Sequence[Trajectory]], most: int = MOST_NODES) -> Icicle | None:
    """Of the groups of one batch whose rewards differ, labelled by task; None where none differ."""
    sequences: list[Ints] = []
    labels: list[str] = []
    for group in groups:
        if len({one.reward.value for one in group} - {None}) < 2:
            continue
        for one in group:
            rows = [segment.ids for segment in one.segments if segment.ids]
            sequences += [np.array(ids, dtype=np.int64) for ids in rows]
            labels += [f"{one.category} · {one.prompt}"[:MOST_LABEL]] * len(rows)
    return icicle(build_forest(sequences), labels, most) if sequences else None


def _labels_through(forest: Forest, starts: Ints, labels: list[int]) -> tuple[Ints, Ints]:
    """Smallest and largest label among the samples through the start of each node."""
    node_at = np.full(forest.tokens, -1)
    node_at[starts] = np.arange(len(starts))
    nodes = node_at[forest.flat_rows]
    each = np.repeat(labels, [len(rows) for rows in forest.rows])[nodes >= 0]
    lowest, highest = np.full(len(starts), len(labels)), np.full(len(starts), -1)
    np.minimum.at(lowest, nodes[nodes >= 0], each)
    np.maximum.at(highest, nodes[nodes >= 0], each)
    return lowest, highest
