"""How a step's batch is cut into passes of the model: padded rows, or packs of prefix trees."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from engine.algorithms.batch import TokenBatch
from engine.models.hybrid import HybridForCausalLM
from engine.models.hybrid.moe import Routing
from engine.models.logprobs import Rows
from engine.trees.batch import TreeBatch, tree_batch
from engine.trees.build import Ints
from engine.trees.pack import deal, make_packs
from engine.trees.statistics import Work

WORTH_RATIO = 1.25  # see docs/decisions/063-prefix-trees.md

TOKEN_STEP = 64  # few sizes of a pass: on a CPU bf16 products are compiled for every new one

Place = tuple[Tensor, Tensor]  # rows and columns of the batch


class Found(NamedTuple):
    """Rows of the tokens in the loss, in the order of `place`; what routers decided.

    routings: of each layer with experts; counts [tokens]: samples that go through each token of
    the pass, 0 for padding.
    """

    rows: Rows
    routings: list[Routing]
    counts: Tensor


@dataclass(frozen=True, eq=False)
class PaddedPass:
    """Rows of like length, padded to one; `index` are their numbers in the batch."""

    index: Tensor
    piece: TokenBatch

    @property
    def place(self) -> Place:
        row, column = self.piece.loss_mask.nonzero(as_tuple=True)
        return self.index[row], column

    @property
    def work(self) -> Work:
        return samples_work(self.piece)

    @property
    def ends(self) -> Tensor:
        """[rows, tokens]: which keys the queries of real tokens see, as `largest_logits` reads."""
        return self.piece.lengths[:, None].expand(self.piece.ids.shape)

    def run(self, model: HybridForCausalLM) -> Found:
        mask, ids = self.piece.loss_mask, self.piece.ids
        routed = model.routed(ids)
        rows = Rows(routed.hidden[:, :-1][mask[:, 1:]], ids[mask])
        real = torch.arange(ids.shape[1]) < self.piece.lengths[:, None]
        return Found(rows, routed.routings, real.flatten())


@dataclass(frozen=True, eq=False)
class TreePass:
    """One pack; its samples share the tokens of their common prefixes."""

    tree: TreeBatch

    @property
    def place(self) -> Place:
        return self.tree.place

    @property
    def work(self) -> Work:
        positions = self.tree.layout.positions[: self.tree.forest.tokens]
        pairs = float(positions.sum()) + len(positions)
        return Work(len(positions), pairs, len(self.tree.targets))

    @property
    def ends(self) -> Tensor:
        """[1, tokens], as those of padded rows: nothing sees the tokens that fill up the pack."""
        ends = self.tree.layout.ends.clone()
        ends[self.tree.forest.tokens :] = 0
        return ends[None]

    def run(self, model: HybridForCausalLM) -> Found:
        routed = model.routed(self.tree.ids, layout=self.tree.layout)
        return Found(self.tree.rows(routed.hidden), routed.routings, self.tree.multiplicity)


def samples_work(batch: TokenBatch) -> Work:
    """What the rows of a batch are, each alone, without padding."""
    lengths = batch.lengths.double()
    pairs = float((lengths * (lengths + 1) / 2).sum())
    return Work(float(lengths.sum()), pairs, batch.loss_tokens)


def passes(
    batch: TokenBatch,
    groups: Sequence[Hashable],
    merge: Literal["auto", "on", "off"],
    tokens: int,
    rank: int = 0,
    world: int = 1,
) -> Iterator[PaddedPass | TreePass]:
    """This rank's passes of about `tokens` tokens each; all ranks together cover each row once.

    `groups` names the group of each row. Merging under "auto" where it spares enough tokens:
    branches cost more than their tokens do.
    """
    if merge != "off":
        sequences = _sequences(batch)
        packs = make_packs(sequences, groups, tokens, ranks=world)
        ratio = sum(map(len, sequences)) / sum(pack.tokens for pack in packs)
        if merge == "on" or ratio >= WORTH_RATIO:
            for pack in deal(packs, world)[rank]:
                yield TreePass(tree_batch(batch, sequences, pack, round_to=TOKEN_STEP))
            return
    for index, piece in batch.pieces(tokens, rank, world):
        yield PaddedPass(index, piece)


def _sequences(batch: TokenBatch) -> list[Ints]:
    rows = zip(batch.ids.numpy(), batch.lengths.tolist(), strict=True)
    return [row[:length] for row, length in rows]
