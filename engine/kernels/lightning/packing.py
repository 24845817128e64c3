"""Where the chunks of a packed batch or a prefix forest lie, worked out once for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

CHUNK = 64
CHUNK_STEP = 8
STATE_COST = 512  # of a chunk, in operations per element of its state: memory traffic mostly
GPU_CHUNK = 64  # the longest that the kernels hold in registers and shared memory

Rows = slice | Tensor
Level = tuple[Tensor, Tensor]  # rows of states, and the rows that each of them follows


@dataclass(frozen=True)
class Packing:
    """The chunk grid of a pack of N nodes: each node starts a chunk, and none is in two nodes.

    A chunk has `chunk` slots, the first `sizes` of which hold tokens; chunks are numbered in the
    order of their tokens. States have a row for each root (what enters it) and then for each
    chunk (what leaves it). `levels` are rows that follow from rows of earlier levels at once.
    """

    cu_seqlens: Tensor  # [N + 1], node i holds the tokens cu_seqlens[i]:cu_seqlens[i + 1]
    parents: Tensor  # [N], parents[i] < i, or -1 for a root
    roots: Tensor  # [roots], the nodes without a parent
    first: Tensor  # [N + 1], node i has the chunks first[i] to first[i + 1]
    starts: Tensor  # [chunks], first token
    sizes: Tensor  # [chunks], tokens, 1..chunk
    before: Tensor  # [chunks], row of the state that enters
    follows: tuple[int, ...]  # the same on the host
    source: Tensor  # [chunks * chunk], token of each slot, 0 in a slot without one
    gaps: Tensor  # [chunks * chunk], whether a slot holds no token
    place: Tensor  # [tokens], slot of each token
    borders: tuple[int, ...]  # [chunks + 1], starts and the end, on the host
    levels: tuple[Level, ...]
    generations: tuple[Tensor, ...]  # nodes by their distance from a root
    children: Tensor  # [N - roots], the children of node 0, then of node 1, ...
    first_child: Tensor  # [N + 1], node i has children[first_child[i]:first_child[i + 1]]
    chunk: int

    @property
    def nodes(self) -> int:
        return self.parents.shape[0]

    @property
    def tokens(self) -> int:
        return self.borders[-1]

    def to(self, device: torch.device) -> "Packing":
        """The same packing with its tensors on another device."""

        def moved(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(moved(part) for part in value)
            return value.to(device) if isinstance(value, Tensor) else value

        return Packing(**{field.name: moved(getattr(self, field.name)) for field in fields(self)})


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
    longest chunk, best the head dim; a shorter one is taken where nodes are short, and on a GPU
    none over 64. Tensors of the result are on `device`, else beside cu_seqlens.
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
    if device.type != "cpu":
        chunk = min(chunk, GPU_CHUNK)
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
    nodes, tokens = len(lengths), int(cu[-1])
    per_node = (lengths + chunk - 1) // chunk
    first = torch.cat([torch.zeros(1, dtype=torch.long), per_node.cumsum(0)])
    roots = (parents < 0).nonzero().flatten()
    node = torch.repeat_interleave(torch.arange(nodes), per_node)
    number = torch.arange(len(node))
    inner = number - first[node]  # which chunk of its node
    starts = cu[node] + inner * chunk
    row = number + len(roots)
    above = torch.where(parents >= 0, first[parents + 1] - 1 + len(roots), 0)
    above[roots] = torch.arange(len(roots))
    before = torch.where(inner > 0, row - 1, above[node])
    of_token = torch.repeat_interleave(torch.arange(nodes), lengths)
    offset = torch.arange(tokens) - cu[of_token]
    place = (first[of_token] + offset // chunk) * chunk + offset % chunk
    source = torch.full((len(node) * chunk,), -1)
    source[place] = torch.arange(tokens)
    depths, generations = _depths(parents, per_node)
    by_parent = parents.argsort(stable=True)[len(roots) :]
    return Packing(
        cu_seqlens=cu,
        parents=parents,
        roots=roots,
        first=first,
        starts=starts,
        sizes=(lengths[node] - inner * chunk).clamp(max=chunk),
        before=before,
        follows=tuple(before.tolist()),
        source=source.clamp(min=0),
        gaps=source < 0,
        place=place,
        borders=(*starts.tolist(), tokens),
        levels=_levels(depths[node] + inner, row, before),
        generations=_by_depth(generations),
        children=by_parent,
        first_child=torch.searchsorted(parents[by_parent], torch.arange(nodes + 1)),
        chunk=chunk,
    )


def _depths(parents: Tensor, per_node: Tensor) -> tuple[Tensor, Tensor]:
    """Chunks, and nodes, between a root's start and each node."""
    chunks: list[int] = []
    nodes: list[int] = []
    counts = per_node.tolist()
    for parent in parents.tolist():
        chunks.append(chunks[parent] + counts[parent] if parent >= 0 else 0)
        nodes.append(nodes[parent] + 1 if parent >= 0 else 0)
    return torch.tensor(chunks), torch.tensor(nodes)


def _by_depth(depth: Tensor) -> tuple[Tensor, ...]:
    """Indices of equal depth, from 0 on."""
    return torch.split(depth.argsort(stable=True), depth.bincount().tolist())


def _levels(depth: Tensor, row: Tensor, before: Tensor) -> tuple[Level, ...]:
    return tuple((row[chunks], before[chunks]) for chunks in _by_depth(depth))
