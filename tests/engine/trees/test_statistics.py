"""What sharing saved, and the forest that people see."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.planner.architecture import Architecture, Layer, Lightning, Mlp, Softmax
from engine.planner.flops import training
from engine.records.events import TreeSnapshot
from engine.trees.build import build_forest
from engine.trees.statistics import Cost, Work, batch_icicle, icicle, sharing
from tests.engine.training.samples import make_trajectory
from tests.engine.trees.test_build import sequence_lists

MODEL = Architecture(
    name="small",
    width=32,
    vocab_size=50,
    layers=(
        Layer(Lightning(heads=4, head_dim=8, chunk=8), Mlp(48)),
        Layer(Softmax(heads=4, kv_heads=4, head_dim=8), Mlp(48)),
    ),
    tied_head=True,
)


@pytest.mark.parametrize("tokens", [8, 64, 200])
def test_cost_agrees_with_the_planner_but_for_logits_computed_again(tokens: int) -> None:
    cost = Cost.of(MODEL)
    work = Work(tokens, tokens * (tokens + 1) / 2, tokens)
    logits_again = 2.0 * MODEL.width * MODEL.vocab_size * tokens
    assert cost.flops(work) == pytest.approx(training(MODEL, tokens).total + logits_again)


def test_nothing_shared_saves_nothing() -> None:
    work = Work(100, 500, 40)
    assert sharing(work, work, Cost.of(MODEL)) == {
        "tree_token_ratio": 1,
        "tree_saved_flops_share": 0,
        "tree_saved_memory_share": 0,
    }


def test_five_times_the_tokens_are_four_fifths_of_the_memory() -> None:
    found = sharing(Work(500, 0, 0), Work(100, 0, 0), Cost.of(MODEL))
    assert found["tree_token_ratio"] == 5
    assert found["tree_saved_flops_share"] == pytest.approx(0.8)
    assert found["tree_saved_memory_share"] == pytest.approx(0.8)


@given(sequence_lists, st.integers(1, 6))
def test_an_icicle_has_the_largest_nodes_with_their_parents(
    sequences: list[list[int]], most: int
) -> None:
    forest = build_forest([np.array(one) for one in sequences])
    whole = icicle(forest, ["a"] * len(sequences), most=10**6)
    assert len(whole.parents) == whole.nodes
    assert sum(whole.tokens) == whole.total_tokens == forest.tokens
    roots = [n for n, parent in zip(whole.samples, whole.parents, strict=True) if parent < 0]
    assert sum(roots) == len(sequences)
    part = icicle(forest, ["a"] * len(sequences), most=most)
    assert len(part.parents) == min(most, whole.nodes) and part.nodes == whole.nodes
    assert all(parent < node for node, parent in enumerate(part.parents))
    sizes = {first: sum(len(s) for s in sequences if s[0] == first) for first, *_ in sequences}
    largest = max(sizes.values())
    tops = [first for first in sizes if sizes[first] == largest]
    assert part.samples[0] in [sum(s[0] == first for s in sequences) for first in tops] or most > 1


def test_a_node_has_a_label_where_all_its_samples_have_the_same() -> None:
    forest = build_forest([np.array(ids) for ids in ([1, 2, 3], [1, 2, 4], [1, 5])])
    found = icicle(forest, ["red", "red", "blue"])
    names = [found.labels[label] if label >= 0 else None for label in found.label]
    assert names == [None, "red", "red", "red", "blue"]
    assert found.samples == [3, 2, 1, 1, 1]


def test_the_icicle_of_a_batch_is_labelled_by_task_and_leaves_out_what_teaches_nothing() -> None:
    rng = random.Random(0)
    teaches = [make_trajectory(rng, "g", float(n % 2)) for n in range(4)]
    flat = [make_trajectory(rng, "f", 1.0) for _ in range(4)]
    teaches[0].prompt = "Which city? " * 50
    found = batch_icicle([teaches, flat])
    assert found is not None
    assert found.sample_tokens == sum(len(one.segments[0].ids) for one in teaches)
    assert all(len(label) <= 160 for label in found.labels)
    assert {label[:16] for label in found.labels} == {"3 hops · ", "3 hops · Which c"}
    event = TreeSnapshot(source="trainer-0", seq=1, at=0.0, step=3, **vars(found))
    assert event.nodes == len(event.parents)
    assert batch_icicle([flat]) is None


def test_labels_of_nodes_that_are_left_out_are_left_out_too() -> None:
    forest = build_forest([np.array([n] * 5) for n in range(9)] + [np.array([9] * 50)])
    found = icicle(forest, [f"task {n}" for n in range(10)], most=1)
    assert (found.labels, found.label, found.nodes) == (["task 9"], [0], 10)
