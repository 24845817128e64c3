"""The tree layout against a walk over each token's ancestors, and its refusals."""

import pytest
import torch
from hypothesis import given, settings

from engine.kernels.tree import TreeLayout
from tests.engine.kernels.tree_cases import Forest, forests


def ancestors(node: int, parents: list[int]) -> list[int]:
    """From the root down to the node itself."""
    path = [node]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


@settings(max_examples=60, deadline=None)
@given(forests(longest=9))
def test_it_agrees_with_a_walk_over_the_ancestors(forest: Forest) -> None:
    lengths, parents = forest
    layout = TreeLayout.build(lengths, parents)
    starts = [sum(lengths[:node]) for node in range(len(lengths) + 1)]
    assert layout.cu_seqlens.tolist() == starts
    assert layout.parents.tolist() == parents
    assert (layout.nodes, layout.tokens) == (len(lengths), sum(lengths))
    visible = torch.zeros(layout.tokens, layout.tokens, dtype=torch.bool)
    for node in range(len(lengths)):
        sequence = [t for a in ancestors(node, parents) for t in range(starts[a], starts[a + 1])]
        for token in range(starts[node], starts[node + 1]):
            position = sequence.index(token)
            assert layout.positions[token] == position
            assert layout.previous[token] == (sequence[position - 1] if position else -1)
            visible[token, sequence[: position + 1]] = True
    index = torch.arange(layout.tokens)
    assert torch.equal(visible, (index <= index[:, None]) & (index[:, None] < layout.ends))


def test_a_packed_batch_is_a_forest_of_roots() -> None:
    layout = TreeLayout.build([3, 1, 2], [-1, -1, -1])
    assert layout.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert layout.ends.tolist() == [3, 3, 3, 4, 6, 6]
    assert layout.previous.tolist() == [-1, 0, 1, -1, -1, 4]


def test_moving_to_where_it_is_keeps_what_was_derived() -> None:
    layout = TreeLayout.build([2], [-1])
    assert layout.to("cpu") is layout
    moved = layout.to("meta")
    assert moved.positions.device.type == "meta" and moved.derived is not layout.derived


@pytest.mark.parametrize(
    ("lengths", "parents", "message"),
    [
        ([], [], "at least one node"),
        ([3, 2], [-1], "node_lengths has 2 entries and parents has 1"),
        ([3, 0, 2], [-1, 0, 0], "Node 1 has 0 tokens"),
        ([3, -2], [-1, 0], "Node 1 has -2 tokens"),
        ([3, 2], [1, -1], "Node 0 has parent 1"),
        ([3, 2], [-1, 1], "Node 1 has parent 1"),
        ([3, 2], [-1, -2], "Node 1 has parent -2"),
        ([1, 1, 1, 1], [-1, 0, 0, 1], "Node 3 follows node 2 with parent 1"),
        ([1, 1, 1], [-1, -1, 0], "Node 2 follows node 1 with parent 0"),
    ],
)
def test_it_refuses(lengths: list[int], parents: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeLayout.build(lengths, parents)
