"""QK-Clip's rules against logits written out head by head, and the models that it refuses."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.lora import add_lora
from engine.optim.qk_clip import (
    QkClip,
    clip_gamma,
    head_factors,
    scale_heads,
    scale_latent_heads,
)

maxima = st.lists(st.floats(-50, 500, width=32), min_size=6, max_size=6)


@given(largest=maxima, tau=st.floats(0.5, 100), shared=st.sampled_from([1, 2, 3, 6]))
@pytest.mark.parametrize("shared_keys", [False, True])
def test_each_head_is_brought_to_tau_and_no_other_is_touched(
    shared_keys: bool, largest: list[float], tau: float, shared: int
) -> None:
    gamma = clip_gamma(torch.tensor(largest).double(), tau)
    queries, keys = head_factors(gamma.view(-1, shared), shared_keys)
    after = torch.tensor(largest).double() * (queries * keys[:, None]).flatten()
    expected = [tau if s > tau else s for s in largest]
    assert torch.allclose(after, torch.tensor(expected, dtype=torch.float64), rtol=1e-9)
    assert bool((queries <= 1).all()) and bool((keys <= 1).all())
    if shared == 1:
        assert torch.equal(queries[:, 0], keys)
    elif not shared_keys:
        assert torch.equal(keys, torch.ones_like(keys))


def test_the_signed_maximum_counts_and_heads_below_zero_are_left_alone() -> None:
    largest = torch.tensor([-300.0, 0.0, -math.inf, 50.0, 400.0])
    assert clip_gamma(largest, 100.0).tolist() == [1, 1, 1, 1, 0.25]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_maximum_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        clip_gamma(torch.tensor([1.0, value]), 100.0)


def logits(x: Tensor, projection: Tensor, bias: Tensor | None, heads: int, shared: int) -> Tensor:
    """[heads, tokens, tokens] of heads of 4 dimensions."""
    rows = nn.functional.linear(x, projection, bias).view(len(x), -1, shared + 2, 4)
    return torch.stack(
        [
            rows[:, head // shared, head % shared] @ rows[:, head // shared, shared].T / 2
            for head in range(heads)
        ]
    )


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_rows_and_biases_scale_logits_exactly(shared: int, with_bias: bool) -> None:
    generator = torch.Generator().manual_seed(shared)
    kv_heads, heads = 4 // shared, 4
    x = torch.randn(10, 6, generator=generator).double()
    parameters = {
        "attn.qkv.weight": nn.Parameter(
            torch.randn(kv_heads * (shared + 2) * 4, 6, generator=generator).double()
        )
    }
    if with_bias:
        parameters["attn.qkv.bias"] = nn.Parameter(
            torch.randn(kv_heads * (shared + 2) * 4, generator=generator).double()
        )
    both = parameters["attn.qkv.weight"], parameters.get("attn.qkv.bias")
    before = logits(x, *both, heads, shared).detach()
    largest = before.amax((1, 2))
    tau = float(largest.median())
    figures = QkClip(parameters, {"attn.qkv.weight": (kv_heads, shared)}, tau).clip(largest[None])
    expected = before * (tau / largest).clamp(max=1)[:, None, None]
    assert torch.allclose(logits(x, *both, heads, shared), expected, rtol=1e-9)
    assert figures == {"qk_clipped_heads": 2.0}


def test_values_and_heads_below_tau_keep_every_bit() -> None:
    projection = torch.randn(2 * 3 * 4, 6, generator=torch.Generator().manual_seed(0))
    before = projection.clone().view(2, 3, 4, 6)
    scale_heads(projection, *head_factors(torch.tensor([[1.0], [0.25]])))
    after = projection.view(2, 3, 4, 6)
    assert torch.equal(after[0], before[0]) and torch.equal(after[:, 2], before[:, 2])
    assert torch.equal(after[1, :2], before[1, :2] * 0.5)


def test_latent_attention_is_scaled_without_its_shared_rotary_key() -> None:
    """Logits of a head are q_c . k_c + q_r . k_r with one k_r for all heads."""
    heads, nope, rotary, value = 3, 4, 2, 5
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    queries, keys_values = draw(heads, nope + rotary, 7), draw(heads, nope + value, 6)
    x, latent, shared_key = draw(9, 7), draw(9, 6), draw(9, rotary)

    def scores() -> tuple[Tensor, Tensor]:
        q = torch.einsum("tw,hrw->htr", x, queries)
        k = torch.einsum("tw,hrw->htr", latent, keys_values)
        score = q[..., :nope] @ k[..., :nope].transpose(1, 2) + q[..., nope:] @ shared_key.T
        return score, k[..., nope:]

    before, values = scores()
    gamma = clip_gamma(before.amax((1, 2)), float(before.amax((1, 2)).min()) / 2)
    scale_latent_heads(queries, keys_values, gamma, rotary)
    after, kept = scores()
    assert bool((gamma < 1).all())
    assert torch.allclose(after, before * gamma[:, None, None], rtol=1e-9)
    assert torch.equal(kept, values)


def tiny(config_class, model_class) -> dict[str, nn.Parameter]:
    config = config_class(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, head_dim=4,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    return dict(model_class(config).named_parameters())


def test_models_that_normalise_queries_and_keys_are_refused() -> None:
    """Qwen3 has a norm behind both projections; Qwen2, whose names are alike, has none."""
    some = {"model.layers.0.self_attn.q_proj.weight": (2, 1)}
    with pytest.raises(ValueError, match=r"self_attn\.[qk]_norm\.weight normalises .* empty"):
        QkClip(tiny(Qwen3Config, Qwen3ForCausalLM), some, 100.0)
    QkClip(tiny(Qwen2Config, Qwen2ForCausalLM), some, 100.0)


def test_adapters_are_refused() -> None:
    model = HybridForCausalLM(HybridConfig(vocab_size=16, hidden_size=16, intermediate_size=16))
    projections = model.softmax_projections()
    adapted = add_lora(model, rank=2, alpha=4)
    with pytest.raises(ValueError, match=re.compile(r"lora_A.* adds to one.* for adapters")):
        QkClip(dict(adapted.named_parameters()), projections, 100.0)


def test_models_without_softmax_layers_are_refused() -> None:
    config = HybridConfig(
        vocab_size=16, hidden_size=16, intermediate_size=16, layer_types=["linear_attention"]
    )
    model = HybridForCausalLM(config)
    with pytest.raises(ValueError, match="no such layer: lightning layers have none"):
        QkClip(dict(model.named_parameters()), model.softmax_projections(), 100.0)
