"""The planner's formulas against torch's FLOP counter and the parameters of real models."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    DeepseekV3Config,
    LlamaConfig,
    MiniMaxConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.minimax.modeling_minimax import MiniMaxCache

from bench._counted_flops import counted, flop_counter, on_meta, transformers_config
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.planner import (
    Architecture,
    Convention,
    Flops,
    Latent,
    next_token,
    parameters,
    prefill,
    read_config,
    training,
)

SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
}
FAMILIES: list[PretrainedConfig] = [
    LlamaConfig(**SMALL, head_dim=16),
    LlamaConfig(**SMALL, head_dim=32, attention_bias=True, tie_word_embeddings=True),
    MistralConfig(**SMALL, head_dim=16, sliding_window=None),
    Qwen2Config(**SMALL),
    Qwen3Config(**SMALL, head_dim=24),
    Qwen3MoeConfig(
        **SMALL,
        head_dim=16,
        num_experts=6,
        num_experts_per_tok=3,
        moe_intermediate_size=32,
        mlp_only_layers=[1],
    ),
    MiniMaxConfig(**SMALL, num_local_experts=4, block_size=32),
    DeepseekV3Config(
        **{**SMALL, "num_key_value_heads": 4},
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_nope_head_dim=12,
        qk_rope_head_dim=8,
        v_head_dim=20,
        moe_intermediate_size=32,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        num_experts_per_tok=2,
        n_shared_experts=2,
        first_k_dense_replace=1,
    ),
    DeepseekV3Config(
        **{**SMALL, "num_key_value_heads": 4}, q_lora_rank=None, first_k_dense_replace=3
    ),
]
BIG = [("minimax-m1", 8), ("deepseek-r1", 5), ("qwen3-235b-a22b", 3)]  # shipped, first layers
HYBRIDS = [
    HybridConfig(),
    HybridConfig(
        vocab_size=900,
        hidden_size=256,
        num_attention_heads=8,
        intermediate_size=320,
        num_key_value_heads=2,
        head_dim=48,
        layer_types=["linear_attention"] * 7 + ["full_attention"],
        conv_width=0,
        tie_word_embeddings=False,
    ),
]
SPARSE = HybridConfig(
    layer_types=["linear_attention"] * 3, num_local_experts=6, num_experts_per_tok=2
)


def shape(config: PretrainedConfig) -> Architecture:
    return read_config(config.to_dict(), "model")


def hybrid_on_meta(config: HybridConfig) -> HybridForCausalLM:
    with torch.device("meta"):
        return HybridForCausalLM(config)


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.model_type)
def test_it_counts_the_parameters_that_transformers_builds(config: PretrainedConfig) -> None:
    built = sum(parameter.numel() for parameter in on_meta(config).parameters())
    assert parameters(shape(config)).total == built


@pytest.mark.parametrize("config", [*HYBRIDS, SPARSE], ids=["quick start", "7:1", "experts"])
def test_it_counts_the_parameters_of_the_hybrid_model(config: HybridConfig) -> None:
    built = sum(parameter.numel() for parameter in hybrid_on_meta(config).parameters())
    assert parameters(shape(config)).total == built


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.model_type)
def test_a_forward_pass_costs_what_the_counter_sees(config: PretrainedConfig) -> None:
    """Eager attention multiplies all n^2 pairs; MLA expands keys and values."""
    model, tokens = on_meta(config), 70
    assert prefill(shape(config), tokens, Convention.UNMASKED).total == counted(model, tokens)


@settings(max_examples=12, deadline=None)
@given(
    heads=st.sampled_from([2, 4, 6]),
    dim=st.sampled_from([8, 20, 32]),
    kinds=st.lists(st.booleans(), min_size=1, max_size=4),
    block=st.integers(8, 40),
    tokens=st.integers(1, 100),
    experts=st.integers(2, 5),
)
def test_any_hybrid_of_lightning_and_softmax_costs_what_the_counter_sees(
    heads: int, dim: int, kinds: list[bool], block: int, tokens: int, experts: int
) -> None:
    config = MiniMaxConfig(
        **{**SMALL, "num_attention_heads": heads, "num_hidden_layers": len(kinds)},
        head_dim=dim,
        layer_types=["linear_attention" if kind else "full_attention" for kind in kinds],
        block_size=block,
        num_local_experts=experts,
    )
    expected = prefill(shape(config), tokens, Convention.UNMASKED).total
    assert counted(on_meta(config), tokens) == expected


@pytest.mark.parametrize(("name", "layers"), BIG)
def test_training_costs_what_the_counter_sees(name: str, layers: int) -> None:
    """Full width, few layers; autograd keeps the scores and skips the first chunk's empty state."""
    config = transformers_config(name, layers)
    expected = training(shape(config), 512, Convention.UNMASKED, recompute_scores=False).total
    assert counted(on_meta(config), 512, backward=True) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("config", HYBRIDS, ids=["quick start", "7:1"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
def test_the_hybrid_model_costs_what_the_counter_sees(config: HybridConfig, backward: bool) -> None:
    """Its lightning attention computes scores again; softmax on meta keeps them."""
    tokens = 512
    found = counted(hybrid_on_meta(config), tokens, backward)
    expected = prefill(shape(config), tokens, Convention.UNMASKED)
    if backward:
        kept = training(shape(config), tokens, Convention.UNMASKED, recompute_scores=False)
        again = training(shape(config), tokens, Convention.UNMASKED)
        expected = Flops(kept.dense, kept.softmax, again.lightning)
    assert found == pytest.approx(expected.total, rel=0.01)


def test_experts_of_the_hybrid_model_cost_what_the_counter_sees() -> None:
    """On real numbers: which experts a token takes decides the shapes of the products."""
    with flop_counter() as counter:
        HybridForCausalLM(SPARSE)(torch.arange(96)[None])
    assert counter.get_total_flops() == pytest.approx(prefill(shape(SPARSE), 96).total, rel=0.01)


def test_a_decoded_token_costs_what_the_counter_sees() -> None:
    """M1's width: the counter misses the decay of the states, 1 of 5 d^2, far below 1%."""
    config = transformers_config("minimax-m1", 8)
    model, context = on_meta(config), 65
    cache = MiniMaxCache()
    for tokens in (context - 1, 1):
        ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
        mask = torch.zeros(1, 1, tokens, context if tokens == 1 else tokens, device="meta")
        with flop_counter() as counter:
            model(
                input_ids=ids,
                attention_mask={"full_attention": mask, "linear_attention": None},
                past_key_values=cache,
                use_cache=True,
                position_ids=torch.zeros(1, tokens, dtype=torch.long, device="meta"),
            )
    assert counter.get_total_flops() == pytest.approx(
        next_token(shape(config), context).total, rel=0.01
    )


def test_absorbed_attention_costs_what_the_counter_sees() -> None:
    """One decoded token of one R1 layer, with the up-projections folded into query and output."""
    model = shape(transformers_config("deepseek-r1", 5))
    mixer = model.layers[0].mixer
    assert isinstance(mixer, Latent)
    context, heads = 1000, mixer.heads

    def empty(*sizes: int) -> torch.Tensor:
        return torch.empty(*sizes, device="meta")

    x, latents, rotary_keys = (
        empty(1, model.width), empty(context, mixer.kv_rank), empty(context, mixer.rope_dim),
    )  # fmt: skip
    with flop_counter() as counter:
        q = x @ empty(model.width, mixer.q_rank)
        q = q @ empty(mixer.q_rank, heads * (mixer.nope_dim + mixer.rope_dim))
        q = q.view(heads, 1, mixer.nope_dim + mixer.rope_dim)
        x @ empty(model.width, mixer.kv_rank + mixer.rope_dim)  # the token's own latent
        q_latent = q[..., : mixer.nope_dim] @ empty(heads, mixer.nope_dim, mixer.kv_rank)
        scores = q_latent.squeeze(1) @ latents.T
        scores = scores + q[..., mixer.nope_dim :].squeeze(1) @ rotary_keys.T
        read = (scores @ latents).unsqueeze(1) @ empty(heads, mixer.kv_rank, mixer.v_dim)
        read.reshape(1, -1) @ empty(heads * mixer.v_dim, model.width)
    mlps_and_head = model.width * model.vocab_size
    mlps_and_head += sum(3 * model.width * layer.mlp.width for layer in model.layers[:1])
    one_layer = Architecture("one", model.width, model.vocab_size, model.layers[:1], False)
    expected = next_token(one_layer, context, Convention.ABSORBED).total - 2 * mlps_and_head
    assert counter.get_total_flops() == expected
