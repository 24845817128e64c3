"""The configuration of the hybrid model: from a spec, of an earlier version, what it refuses."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.spec import ModelSpec


def test_the_spec_sets_every_part_of_the_configuration() -> None:
    spec = ModelSpec(width=64, heads=2, layers=["lightning", "lightning", "softmax"], conv_width=0)
    config = HybridConfig.from_spec(spec, vocab_size=321, pad_id=0, end_id=1)
    assert config.layer_types == [LIGHTNING, LIGHTNING, SOFTMAX]
    assert (config.hidden_size, config.head_dim, config.vocab_size) == (64, 32, 321)
    assert config.residual_alpha == pytest.approx(6**0.25)
    assert (config.pad_token_id, config.eos_token_id) == (0, 1)
    defaults = HybridConfig.from_spec(ModelSpec(), vocab_size=321, pad_id=0, end_id=1)
    assert (defaults.num_key_value_heads, defaults.head_dim, defaults.rotary_dim) == (4, 32, 32)
    assert (defaults.num_local_experts, defaults.tie_word_embeddings) == (1, True)
    spec = ModelSpec(
        kv_heads=2,
        head_dim=20,
        rotary_dim=8,
        experts=5,
        experts_per_token=3,
        router_aux_weight=0.02,
        tie_embeddings=False,
    )
    config = HybridConfig.from_spec(spec, vocab_size=321, pad_id=0, end_id=1)
    assert (config.num_key_value_heads, config.head_dim, config.rotary_dim) == (2, 20, 8)
    assert (config.num_local_experts, config.num_experts_per_tok) == (5, 3)
    assert (config.router_aux_loss_coef, config.tie_word_embeddings) == (0.02, False)


def test_unknown_layers_and_odd_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="sliding"):
        HybridConfig(layer_types=["sliding"])
    with pytest.raises(ValueError, match="even multiple"):
        HybridConfig(hidden_size=36, num_attention_heads=4)
    with pytest.raises(ValueError, match="num_hidden_layers is 3, layer_types names 2"):
        HybridConfig(num_hidden_layers=3, layer_types=[LIGHTNING, SOFTMAX])
    with pytest.raises(ValueError, match="layer_types is empty"):
        HybridConfig(layer_types=[])
    with pytest.raises(ValueError, match="4 cannot share 3 key-value heads evenly"):
        HybridConfig(num_key_value_heads=3)
    with pytest.raises(ValueError, match="rotary_dim 34 must be even and at most head_dim 32"):
        HybridConfig(rotary_dim=34)
    with pytest.raises(ValueError, match="rotary_dim 3 must be even"):
        HybridConfig(rotary_dim=3)


@pytest.mark.parametrize("layers, softmax", [(8, [7]), (20, [7, 15]), (3, [])])
def test_without_a_pattern_seven_lightning_layers_stand_before_a_softmax_one(
    layers: int, softmax: list[int]
) -> None:
    kinds = HybridConfig(num_hidden_layers=layers).layer_types
    assert [layer for layer, kind in enumerate(kinds) if kind == SOFTMAX] == softmax
    assert len(kinds) == layers


def test_a_checkpoint_of_an_earlier_version_loads(tmp_path) -> None:
    """Its configuration knew one alpha for all branches and none of the later options."""
    old = {
        "architectures": ["HybridForCausalLM"],
        "conv_width": 3,
        "dtype": "float32",
        "embedding_std": 0.09,
        "hidden_size": 32,
        "initializer_range": 0.05,
        "intermediate_size": 48,
        "layer_types": [LIGHTNING, SOFTMAX],
        "model_type": "caravan_hybrid",
        "num_attention_heads": 4,
        "residual_alpha": 1.3,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000.0,
        "slope_schedule": "minimax",
        "use_cache": False,
        "vocab_size": 50,
    }
    names = [
        "mixer_norm.weight",
        "mixer.conv",
        "mixer.qkv_proj.weight",
        "mixer.out_proj.weight",
        "mixer.output_gate.weight",
        "mixer.norm.weight",
        "mlp_norm.weight",
        "mlp.gate_up_proj.weight",
        "mlp.down_proj.weight",
    ]
    gate = {"mixer.output_gate.weight", "mixer.norm.weight"}
    torch.manual_seed(0)
    model = HybridForCausalLM(
        HybridConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            layer_types=[LIGHTNING, SOFTMAX],
            residual_alpha=1.3,
        )
    )
    assert [name for name, _ in model.named_parameters()] == [  # the optimizer goes by this order
        "embedding.weight",
        *(f"layers.0.{name}" for name in names),
        *(f"layers.1.{name}" for name in names if name not in gate),
        "norm.weight",
    ]
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(old))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    config = loaded.config
    factors = config.linear_attn_alpha_factor, config.full_attn_alpha_factor
    assert (*factors, config.mlp_alpha_factor) == (1.3, 1.3, 1.3)
    ids = torch.randint(0, 50, (2, 9))
    assert torch.equal(loaded(ids).logits, model(ids).logits)
