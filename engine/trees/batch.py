"""One pack as the model sees it: a forest of tokens, and where each sample's log-probs come from.

The loss stands on edges: from a token to one that follows it. Every distinct edge is computed once
and each sample gathers its own from them, so that whatever a loss does with a sample's
log-probabilities, advantages and weights is exact; autograd adds up what samples share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.algorithms.batch import TokenBatch
from engine.kernels.tree.layout import TreeLayout
from engine.models.logprobs import Rows
from engine.trees.build import Forest, Ints, build_forest
from engine.trees.pack import Pack


@dataclass(frozen=True, eq=False)
class TreeBatch:
    """What one pass over a pack needs; `place` leads back to the samples.

    ids [1, tokens]; multiplicity [tokens]: samples through each token, none through filling;
    sources, targets [edges]: the token whose hidden state predicts, and the id predicted;
    edge_of [N]: the edge of each token in the loss; place: its row and column in the TokenBatch.
    """

    forest: Forest
    layout: TreeLayout
    ids: Tensor
    multiplicity: Tensor
    sources: Tensor
    targets: Tensor
    edge_of: Tensor
    place: tuple[Tensor, Tensor]

    def rows(self, hidden: Tensor) -> Rows:
        """Of the tokens in the loss, from hidden states [1, tokens, width]."""
        return Rows(hidden[0].index_select(0, self.sources), self.targets, self.edge_of)


def tree_batch(
    batch: TokenBatch,
    sequences: Sequence[Ints],
    pack: Pack,
    *,
    merge: bool = True,
    round_to: int = 1,
) -> TreeBatch:
    """The pack's part of the batch; `sequences` are the ids of the batch's rows, without padding.

    With `merge` False samples are packed one after the other and share nothing. `round_to`: the
    tokens are filled up to a multiple of it, by a tree that nothing reads.
    """
    forest = build_forest([sequences[row] for row in pack.samples], merge=merge)
    node_lengths, parents = forest.node_lengths.tolist(), forest.parents.tolist()
    filling = -forest.tokens % round_to
    if filling:
        node_lengths.append(filling)
        parents.append(-1)
    layout = TreeLayout.build(node_lengths, parents)
    ids = torch.from_numpy(np.pad(forest.ids, (0, filling)))
    row, column = batch.loss_mask[pack.samples].nonzero(as_tuple=True)
    lengths = batch.lengths[pack.samples]
    starts = lengths.cumsum(0) - lengths
    token = torch.from_numpy(forest.flat_rows)[starts[row] + column]
    is_target = torch.zeros(layout.tokens, dtype=torch.bool)
    is_target[token] = True
    edge = is_target.cumsum(0) - 1
    targets = is_target.nonzero()[:, 0]
    return TreeBatch(
        forest=forest,
        layout=layout,
        ids=ids[None],
        multiplicity=torch.from_numpy(np.pad(forest.multiplicity, (0, filling))),
        sources=layout.previous[targets],
        targets=ids[targets],
        edge_of=edge[token],
        place=(torch.tensor(pack.samples)[row], column),
    )
