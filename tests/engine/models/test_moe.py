"""Mixture of experts against transformers' MiniMax, token by token, and replayed routes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import MiniMaxConfig
from transformers.models.minimax.modeling_minimax import (
    MiniMaxSparseMoeBlock,
    load_balancing_loss_func,
)

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.hybrid.moe import MixtureOfExperts, balancing_loss

WIDTH, INNER = 16, 12


def build(experts: int, each: int, seed: int = 0) -> MixtureOfExperts:
    config = HybridConfig(
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_local_experts=experts,
        num_experts_per_tok=each,
    )
    layer = MixtureOfExperts(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    return layer


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=15, deadline=None)
@given(experts=st.integers(2, 9), data=st.data(), rows=st.integers(1, 3), tokens=st.integers(1, 9))
def test_values_and_gradients_equal_those_of_transformers(
    experts: int, data: st.DataObject, rows: int, tokens: int
) -> None:
    each = data.draw(st.integers(2, experts))
    ours = build(experts, each)
    config = MiniMaxConfig(
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_local_experts=experts,
        num_experts_per_tok=each,
        experts_implementation="eager",
    )
    theirs = MiniMaxSparseMoeBlock(config)
    pairs = [
        (theirs.gate.weight, ours.router.weight),
        (theirs.experts.gate_up_proj, ours.experts.gate_up_proj),
        (theirs.experts.down_proj, ours.experts.down_proj),
    ]
    with torch.no_grad():
        for their, our in pairs:
            their.copy_(our)
    x, scale = draw(rows, tokens, WIDTH).requires_grad_(), draw(rows, tokens, WIDTH, seed=2)
    expected, (actual, _) = theirs(x), ours(x)
    assert torch.allclose(actual, expected, atol=1e-4, rtol=1e-5)
    wanted = torch.autograd.grad((expected * scale).sum(), [x, *(pair[0] for pair in pairs)])
    found = torch.autograd.grad((actual * scale).sum(), [x, *(pair[1] for pair in pairs)])
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-3, rtol=1e-4)


def test_the_balancing_loss_of_a_layer_equals_that_of_transformers() -> None:
    layer = build(5, 2)
    x = draw(3, 7, WIDTH)
    routing = layer(x)[1]
    logits = (x.flatten(0, 1) @ layer.router.weight.T,)
    assert torch.allclose(
        balancing_loss([routing]), load_balancing_loss_func(logits, 5, 2), atol=1e-5
    )
    mask = (draw(3, 7) > 0).long()
    expected = load_balancing_loss_func(logits, 5, 2, attention_mask=mask)
    assert torch.allclose(balancing_loss([routing], mask.flatten()), expected, atol=1e-5)


def test_a_weight_counts_a_token_as_often_as_it_says() -> None:
    layer = build(4, 2)
    x = draw(6, WIDTH)
    counts = torch.tensor([1, 4, 2, 1, 0, 3])
    repeated = layer(x.repeat_interleave(counts, dim=0))[1]
    weighted = balancing_loss([layer(x)[1]], counts)
    assert torch.allclose(weighted, balancing_loss([repeated]), atol=1e-6)


def test_layers_are_balanced_one_by_one() -> None:
    """Two layers that each favour one expert do not make up for each other."""
    probabilities = torch.tensor([[0.9, 0.1]]).expand(8, 2)
    chosen = torch.tensor([[0]]).expand(8, 1)
    first, second = (probabilities, chosen), (probabilities.flip(1), 1 - chosen)
    assert float(balancing_loss([first, second])) == pytest.approx(1.8)


def test_what_a_token_gives_does_not_depend_on_its_batch() -> None:
    layer = build(8, 2)
    x = draw(40, WIDTH)
    together = layer(x)[0]
    assert torch.allclose(together, torch.cat([layer(row[None])[0] for row in x]), atol=1e-4)


@torch.no_grad()
def test_replayed_experts_are_taken_and_weighed_anew() -> None:
    torch.manual_seed(0)
    model = HybridForCausalLM(
        HybridConfig(vocab_size=50, hidden_size=WIDTH, intermediate_size=INNER, num_local_experts=4)
    )
    ids = torch.randint(0, 50, (2, 9))
    first = model.routed(ids)
    chosen = torch.stack([routing.chosen for routing in first.routings])
    assert torch.equal(model.routed(ids, chosen=chosen).hidden, first.hidden)
    other = (chosen + 1) % 4
    replayed = model.routed(ids, chosen=other)
    assert not torch.allclose(replayed.hidden, first.hidden, atol=1e-3)
    assert all(
        torch.equal(routing.chosen, experts)
        for routing, experts in zip(replayed.routings, other, strict=True)
    )
    layer = build(4, 2)
    x, pair = draw(1, WIDTH), torch.tensor([[3, 1]])
    weights = layer(x)[1].probabilities[0, [3, 1]]
    parts = layer.experts(x, pair)[0]
    expected = (parts * (weights / weights.sum())[:, None]).sum(0)
    assert torch.allclose(layer(x, pair)[0][0], expected, atol=1e-5)


def test_routers_stay_in_fp32_beside_bf16_blocks() -> None:
    torch.manual_seed(0)
    model = HybridForCausalLM(HybridConfig(vocab_size=50, num_local_experts=4))
    copied = model.copy_in(torch.bfloat16)
    router = copied.layers[0].mlp.router
    assert router.weight.dtype == torch.float32
    assert torch.equal(router.weight, model.layers[0].mlp.router.weight)
    assert copied.layers[0].mlp.experts.down_proj.dtype == torch.bfloat16
    assert copied.routed(torch.arange(5)[None]).routings[0].probabilities.dtype == torch.float32


def test_numbers_of_experts_that_teach_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="1 experts a token of 4"):
        HybridConfig(num_local_experts=4, num_experts_per_tok=1)
    with pytest.raises(ValueError, match="5 experts a token of 4"):
        HybridConfig(num_local_experts=4, num_experts_per_tok=5)
    with pytest.raises(ValueError, match="there is no router"):
        HybridConfig(router_aux_loss_coef=0.1)
