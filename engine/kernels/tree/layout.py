"""A forest of prefix trees as one run of tokens: nodes in depth-first preorder, O(N) metadata."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TreeLayout:
    """Where the tokens of a forest stand; make one with `TreeLayout.build`.

    A node is a run of tokens, its ancestors are the prefix of its sequence. A packed batch that
    shares nothing is the layout in which every parent is -1.

    cu_seqlens [nodes + 1]: node i holds the tokens cu_seqlens[i] : cu_seqlens[i + 1];
    parents [nodes]: parents[i] < i, or -1 for a root;
    positions [tokens]: position of each token in its own sequence;
    ends [tokens]: end of the subtree of the token's node, so that key j is visible to query i
        exactly if j <= i < ends[j];
    previous [tokens]: the token before it in its own sequence, -1 at the start of a root.
    All int64. `derived` holds what kernels compute from the layout, so that layers share it.
    """

    cu_seqlens: Tensor
    parents: Tensor
    positions: Tensor
    ends: Tensor
    previous: Tensor
    derived: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def tokens(self) -> int:
        return self.positions.shape[0]

    @property
    def nodes(self) -> int:
        return self.parents.shape[0]

    @classmethod
    def build(cls, node_lengths: Sequence[int], parents: Sequence[int]) -> "TreeLayout":
        """The layout, on the CPU, of nodes given in depth-first preorder.

        Raises ValueError on lists of different lengths, no nodes, empty nodes, parents that do
        not come before their children (cycles included) and orders that are not preorder.
        """
        count = len(node_lengths)
        if count != len(parents):
            raise ValueError(
                f"node_lengths has {count} entries and parents has {len(parents)}; "
                "give one length and one parent for each node."
            )
        if count == 0:
            raise ValueError("A tree layout needs at least one node; node_lengths is empty.")
        starts = [0] * (count + 1)
        first_positions, end_nodes = [0] * count, [count] * count
        path: list[int] = []  # from a root to the node before this one
        for node, (length, parent) in enumerate(zip(node_lengths, parents, strict=True)):
            if length < 1:
                raise ValueError(f"Node {node} has {length} tokens; a node needs at least one.")
            if not -1 <= parent < node:
                raise ValueError(
                    f"Node {node} has parent {parent}; a parent comes before its children, "
                    f"from 0 to {node - 1}, or is -1 for a root."
                )
            while path and path[-1] != parent:
                end_nodes[path.pop()] = node
            if parent >= 0:
                if not path:
                    raise ValueError(
                        f"Node {node} follows node {node - 1} with parent {parent}, whose subtree "
                        "had ended already; list the nodes in depth-first preorder."
                    )
                first_positions[node] = first_positions[parent] + int(node_lengths[parent])
            path.append(node)
            starts[node + 1] = starts[node] + int(length)
        cu_seqlens = torch.tensor(starts)
        lengths = cu_seqlens.diff()
        tokens = torch.arange(starts[-1])
        shift = torch.tensor(first_positions) - cu_seqlens[:-1]
        parent_nodes = torch.tensor([int(parent) for parent in parents])
        previous = tokens - 1
        previous[cu_seqlens[:-1]] = torch.where(
            parent_nodes >= 0, cu_seqlens[parent_nodes + 1] - 1, -1
        )
        return cls(
            cu_seqlens=cu_seqlens,
            parents=parent_nodes,
            positions=tokens + shift.repeat_interleave(lengths),
            ends=cu_seqlens[torch.tensor(end_nodes)].repeat_interleave(lengths),
            previous=previous,
        )

    def to(self, device: torch.device | str) -> "TreeLayout":
        """The same layout on `device`; itself if it is there already."""
        if self.positions.device == torch.device(device):
            return self
        return TreeLayout(
            cu_seqlens=self.cu_seqlens.to(device),
            parents=self.parents.to(device),
            positions=self.positions.to(device),
            ends=self.ends.to(device),
            previous=self.previous.to(device),
        )
