"""Where the chunks of a packed batch or a prefix forest lie, worked out once for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

CHUNK = 64
CHUNK_STEP = 8
STATE_COST = 256  # of a chunk's state, in operations per element: it is memory traffic mostly


@dataclass(frozen=True)
class Packing:
    """The chunk grid of a pack of N nodes: each node starts a chunk, and none is in two nodes.

    A chunk has `chunk` slots, the first `sizes` of which hold tokens. Chunks are sorted by depth
    (in chunks from the root), the first one of each root leading; `levels` are the ranges of equal
    depth, so that the states of a level follow from those of earlier levels at once.
    """

    cu_seqlens: Tensor  # [N + 1], node i holds the tokens cu_seqlens[i]:cu_seqlens[i + 1]
    parents: Tensor  # [N], parents[i] < i, or -1 for a root
    roots: Tensor  # [roots], the nodes without a parent
    starts: Tensor  # [chunks], first token
    sizes: Tensor  # [chunks], tokens, 1..chunk
    before: Tensor  # [chunks], the chunk whose final state enters; -1 in the first of a root
    ends: Tensor  # [N], last chunk of each node
    by_node: Tensor  # [chunks], the chunks of node 0 in order, then of node 1, ...
    first: Tensor  # [N + 1], node i has the chunks by_node[first[i]:first[i + 1]]
    source: Tensor  # [chunks * chunk], token of each slot, 0 in a slot without one
    place: Tensor  # [tokens], slot of each token
    gaps: Tensor  # slots without a token
    levels: tuple[tuple[int, int], ...]
    chunk: int
    tokens: int
    straight: bool  # token i stands in slot i, and there are no gaps

    @property
    def nodes(self) -> int:
        return self.parents.shape[0]

    def to(self, device: torch.device) -> "Packing":
        """The same packing with its tensors on another device."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            moved[field.name] = value.to(device) if isinstance(value, Tensor) else value
        return Packing(**moved)


def packing(
    cu_seqlens: Tensor | Sequence[int],
    parents: Tensor | Sequence[int] | None = None,
    *,
    chunk: int = CHUNK,
    device: torch.device | None = None,
) -> Packing:
    """The chunk grid of nodes that hold the tokens cu_seqlens[i]:cu_seqlens[i + 1].

    cu_seqlens: [N + 1], strictly increasing from 0; parents: [N], the node whose final state
    enters node i, before i, or -1; without it every node is a sequence of its own. chunk: the
    longest chunk, best the head dim; a shorter one is taken where nodes are short. Tensors of the
    result are on `device`, else beside cu_seqlens.
    Raises ValueError for empty nodes, decreasing cu_seqlens, parents at or after their node.
    """
    if device is None:
        device = cu_seqlens.device if isinstance(cu_seqlens, Tensor) else torch.device("cpu")
    cu = _whole_numbers("cu_seqlens", cu_seqlens)
    if len(cu) < 2 or cu[0] != 0:
        raise ValueError(
            f"cu_seqlens has shape {list(cu.shape)} and begins with {cu[:1].tolist()}: "
            "it must begin with 0 and name at least one sequence"
        )
    lengths = cu.diff()
    if bool((lengths <= 0).any()):
        node = int((lengths <= 0).nonzero()[0])
        raise ValueError(
            f"cu_seqlens must increase strictly, but sequence {node} of {len(lengths)} runs from "
            f"{int(cu[node])} to {int(cu[node + 1])}: leave out empty sequences"
        )
    nodes = len(lengths)
    up = torch.full((nodes,), -1) if parents is None else _whole_numbers("parents", parents)
    _check_parents(up, nodes)
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}: it must be at least 1")
    made = _grid(cu, lengths, up, _best_chunk(lengths, chunk))
    return made if device.type == "cpu" else made.to(device)


def _whole_numbers(name: str, values: Tensor | Sequence[int]) -> Tensor:
    numbers = torch.as_tensor(values).detach().cpu()
    if numbers.dim() != 1 or numbers.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"{name} has shape {list(numbers.shape)} and type {numbers.dtype}: "
            "it must be one row of int64"
        )
    return numbers.long()


def _check_parents(parents: Tensor, nodes: int) -> None:
    if len(parents) != nodes:
        raise ValueError(
            f"parents has {len(parents)} entries, but cu_seqlens names {nodes} nodes: "
            "there must be one for each"
        )
    wrong = ((parents >= torch.arange(nodes)) | (parents < -1)).nonzero().flatten()
    if len(wrong):
        node = int(wrong[0])
        raise ValueError(
            f"parents[{node}] is {int(parents[node])}: the parent of a node must come before it, "
            f"or be -1 for a root ({nodes} nodes)"
        )


def _best_chunk(lengths: Tensor, longest: int) -> int:
    """The chunk length of least work: operations inside the chunks, and their states' traffic."""
    tried = [*range(CHUNK_STEP, longest, CHUNK_STEP), longest]
    sizes = torch.tensor(tried)
    chunks = (lengths[:, None] + sizes - 1).div(sizes, rounding_mode="floor").sum(dim=0)
    work = chunks * (sizes * (14 * sizes + 12 * longest) + STATE_COST * longest)
    return int(min(int(lengths.max()), tried[int(work.argmin())]))


def _grid(cu: Tensor, lengths: Tensor, parents: Tensor, chunk: int) -> Packing:
    nodes = len(lengths)
    per_node = (lengths + chunk - 1) // chunk
    first = torch.cat([torch.zeros(1, dtype=torch.long), per_node.cumsum(0)])
    depths: list[int] = []  # of a node's first chunk
    counts = per_node.tolist()
    for parent in parents.tolist():
        depths.append(depths[parent] + counts[parent] if parent >= 0 else 0)
    node = torch.repeat_interleave(torch.arange(nodes), per_node)
    inner = torch.arange(len(node)) - first[node]  # number of the chunk in its node
    depth = torch.tensor(depths)[node] + inner
    order = depth.argsort(stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    last = rank[first[1:] - 1]
    before = torch.where(inner > 0, rank.roll(1), -1)
    entered = (inner == 0) & (parents[node] >= 0)
    before[entered] = last[parents[node[entered]]]
    starts = cu[node] + inner * chunk
    sizes = (lengths[node] - inner * chunk).clamp(max=chunk)
    borders = [0, *depth.bincount().cumsum(0).tolist()]
    of_token = torch.repeat_interleave(torch.arange(nodes), lengths)
    offset = torch.arange(len(of_token)) - cu[of_token]
    place = rank[first[of_token] + offset // chunk] * chunk + offset % chunk
    source = torch.full((len(node) * chunk,), -1)
    source[place] = torch.arange(len(of_token))
    gaps = (source < 0).nonzero().flatten()
    return Packing(
        cu_seqlens=cu,
        parents=parents,
        roots=(parents < 0).nonzero().flatten(),
        starts=starts[order],
        sizes=sizes[order],
        before=before[order],
        ends=last,
        by_node=rank,
        first=first,
        source=source.clamp(min=0),
        place=place,
        gaps=gaps,
        levels=tuple(zip(borders, borders[1:], strict=False)),
        chunk=chunk,
        tokens=len(of_token),
        straight=len(gaps) == 0 and bool((place == torch.arange(len(place))).all()),
    )
