"""Prefix trees and packed rows through the whole model, against each sequence alone."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.kernels.tree import TreeLayout
from engine.models.hybrid import HybridCache, HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.models.hybrid.moe import balancing_loss
from engine.models.hybrid.ops import branched_conv, causal_conv
from engine.models.hybrid.places import Branches
from engine.models.logprobs import token_logprobs

PATTERNS = {"3:1": [LIGHTNING] * 3 + [SOFTMAX], "7:1": [LIGHTNING] * 7 + [SOFTMAX]}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
# Two trees: nodes of one token, a path of forks, siblings, a node longer than a chunk.
LENGTHS = [9, 1, 3, 1, 20, 5, 1, 2, 11, 6]
PARENTS = [-1, 0, 1, 1, 0, 4, 4, -1, 7, 7]


@dataclass
class Forest:
    layout: TreeLayout
    ids: Tensor  # [1, tokens]
    paths: list[Tensor]  # for each leaf, the tokens of its sequence

    @property
    def multiplicity(self) -> Tensor:
        """How many sequences go through each token."""
        return torch.bincount(torch.cat(self.paths), minlength=self.layout.tokens).double()


def forest(lengths: list[int] = LENGTHS, parents: list[int] = PARENTS, seed: int = 0) -> Forest:
    layout = TreeLayout.build(lengths, parents)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 50, (1, layout.tokens), generator=generator)
    paths = []
    for leaf in sorted(set(range(len(parents))) - set(parents)):
        nodes = [leaf]
        while parents[nodes[0]] >= 0:
            nodes.insert(0, parents[nodes[0]])
        starts = layout.cu_seqlens.tolist()
        paths.append(torch.cat([torch.arange(starts[n], starts[n + 1]) for n in nodes]))
    return Forest(layout, ids, paths)


def build(dtype: torch.dtype, **fields) -> HybridForCausalLM:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=50,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        rotary_dim=4,
        intermediate_size=16,
        initializer_range=0.2,
        mlp_beta_factor=0.7,
        **fields,
    )
    model = HybridForCausalLM(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5)
    return model


def gradients(model: HybridForCausalLM, loss: Tensor) -> dict[str, Tensor]:
    named = dict(model.named_parameters())
    found = torch.autograd.grad(loss, list(named.values()))
    return dict(zip(named, found, strict=True))


def sequence_loss(model: HybridForCausalLM, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Sum of weighted log-probabilities; hidden: [tokens, width]."""
    found = token_logprobs(hidden[:-1], model.head_weight, ids[1:])
    return (found.logprobs * weights).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("conv_width", [0, 3])
@pytest.mark.parametrize("experts", [1, 4])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_loss_and_gradients_of_a_tree_equal_those_of_its_sequences(
    pattern: str, experts: int, conv_width: int, dtype: torch.dtype
) -> None:
    model = build(
        dtype, layer_types=PATTERNS[pattern], num_local_experts=experts, conv_width=conv_width
    )
    trees = forest()
    generator = torch.Generator().manual_seed(3)
    weights = [
        torch.randn(len(path) - 1, generator=generator, dtype=dtype) / 50 for path in trees.paths
    ]

    def total(rows: list[Tensor], routings: list, counts: Tensor) -> Tensor:
        loss = torch.zeros((), dtype=dtype)
        for hidden, path, weight in zip(rows, trees.paths, weights, strict=True):
            loss = loss + sequence_loss(model, hidden, trees.ids[0, path], weight)
        return loss + 0.1 * balancing_loss(routings, counts) if experts > 1 else loss

    longest = max(len(path) for path in trees.paths)
    ids = torch.zeros(len(trees.paths), longest, dtype=torch.long)
    real = torch.zeros_like(ids)
    for row, path in enumerate(trees.paths):
        ids[row, : len(path)] = trees.ids[0, path]
        real[row, : len(path)] = 1
    alone = model.routed(ids)
    expected = total(
        [alone.hidden[row, : len(path)] for row, path in enumerate(trees.paths)],
        alone.routings,
        real.flatten(),
    )
    merged = model.routed(trees.ids, layout=trees.layout)
    actual = total(
        [merged.hidden[0, path] for path in trees.paths], merged.routings, trees.multiplicity
    )
    tolerance = TOLERANCE[dtype]
    assert abs(float(actual - expected)) <= tolerance * abs(float(expected))
    wanted, found = gradients(model, expected), gradients(model, actual)
    for name, gradient in wanted.items():
        assert float((found[name] - gradient).norm()) <= tolerance * float(gradient.norm()), name


@pytest.mark.parametrize("conv_width", [0, 1, 3])
def test_packed_rows_equal_separate_ones(conv_width: int) -> None:
    model = build(torch.float64, conv_width=conv_width, layer_types=PATTERNS["3:1"])
    packed = forest([5, 1, 70, 2], [-1] * 4)
    hidden = model.hidden(packed.ids, layout=packed.layout)[0]
    alone = [model.hidden(packed.ids[:, path])[0] for path in packed.paths]
    assert torch.allclose(hidden, torch.cat(alone), atol=1e-12)
    expected = gradients(model, torch.cat(alone).square().sum())
    for name, gradient in gradients(model, hidden.square().sum()).items():
        if name != "embedding.weight" or model.config.tie_word_embeddings:
            assert torch.allclose(gradient, expected[name], atol=1e-9, rtol=1e-10), name


@pytest.mark.parametrize("lengths, parents", [(LENGTHS, PARENTS), ([1], [-1]), ([1, 1], [-1, 0])])
def test_the_convolution_follows_branches(lengths: list[int], parents: list[int]) -> None:
    """Against the plain one along each path; the gradient by finite differences."""
    trees = forest(lengths, parents)
    branches = Branches(trees.layout, chunk=4, lags=3)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, trees.layout.tokens, 2, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(4, 2, 3, generator=generator, dtype=torch.float64)
    found = branched_conv(x, weight, *branches.seams)
    for path in trees.paths:
        assert torch.allclose(found[:, path], causal_conv(x[:, path], weight), atol=1e-12)
    leaves = x.requires_grad_(), weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: branched_conv(x, w, *branches.seams), leaves)


def test_gradient_checkpointing_changes_no_gradient_of_a_tree() -> None:
    model = build(torch.float64, layer_types=PATTERNS["3:1"], num_local_experts=4)
    trees = forest()

    def loss() -> Tensor:
        routed = model.routed(trees.ids, layout=trees.layout)
        return routed.hidden.square().sum() + balancing_loss(routed.routings, trees.multiplicity)

    expected = gradients(model, loss())
    model.gradient_checkpointing_enable()
    for name, gradient in gradients(model, loss()).items():
        assert torch.allclose(gradient, expected[name], atol=1e-12, rtol=1e-12), name


@torch.no_grad()
def test_a_balancing_loss_without_multiplicity_would_differ() -> None:
    model = build(torch.float64, layer_types=PATTERNS["3:1"], num_local_experts=4)
    trees = forest()
    routings = model.routed(trees.ids, layout=trees.layout).routings
    counted = balancing_loss(routings, trees.multiplicity)
    assert abs(float(balancing_loss(routings) - counted)) > 1e-3


@torch.no_grad()
def test_bf16_blocks_take_trees_too() -> None:
    model = build(torch.float32, layer_types=PATTERNS["3:1"], num_local_experts=4)
    trees = forest()
    expected = model.hidden(trees.ids, layout=trees.layout)
    actual = model.copy_in(torch.bfloat16).hidden(trees.ids, layout=trees.layout)
    assert float((actual - expected).abs().mean() / expected.abs().mean()) < 0.03


def test_a_layout_that_does_not_fit_is_refused() -> None:
    model = build(torch.float32, layer_types=[LIGHTNING])
    layout = TreeLayout.build([3, 2], [-1, 0])
    with pytest.raises(ValueError, match=r"ids have shape \[1, 4\].* \[1, 5\]"):
        model.hidden(torch.zeros(1, 4, dtype=torch.long), layout=layout)
    cache = HybridCache.empty(model.config, 1, 8)
    with pytest.raises(ValueError, match="start anew"):
        model.hidden(torch.zeros(1, 5, dtype=torch.long), cache, layout=layout)
