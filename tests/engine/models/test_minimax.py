"""The published block: the hybrid model's options against transformers' MiniMax, both ways."""

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import MiniMaxConfig, MiniMaxForCausalLM

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.models.hybrid.minimax import (
    departures,
    from_minimax,
    hybrid_config,
    hybrid_weights,
    minimax_config,
    to_minimax,
)
from engine.models.hybrid.mixers import LightningMixer
from engine.optim.optimizer import FusedMatrix

PATTERNS = {
    "7:1": [LIGHTNING] * 7 + [SOFTMAX],
    "3:1": [LIGHTNING] * 3 + [SOFTMAX],
    "softmax first": [SOFTMAX, LIGHTNING, LIGHTNING],
    "lightning": [LIGHTNING] * 2,
    "softmax": [SOFTMAX] * 2,
}


def minimax(**fields) -> MiniMaxForCausalLM:
    """A small MiniMax whose every weight and factor differs from its default."""
    torch.manual_seed(0)
    config = {
        "vocab_size": 60,
        "hidden_size": 32,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        "block_size": 8,
        "initializer_range": 0.2,
        "full_attn_alpha_factor": 1.7,
        "full_attn_beta_factor": 0.9,
        "linear_attn_alpha_factor": 1.4,
        "linear_attn_beta_factor": 1.1,
        "mlp_alpha_factor": 1.3,
        "mlp_beta_factor": 0.8,
        "attn_implementation": "eager",
    }
    model = MiniMaxForCausalLM(MiniMaxConfig(**config | fields)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5)
    return model


def with_exact_slopes(theirs: MiniMaxForCausalLM, ours: HybridForCausalLM) -> MiniMaxForCausalLM:
    """Their model with the published slopes: theirs have another 1e-5 in the layer factor."""
    for layer, block in zip(theirs.model.layers, ours.layers, strict=True):
        if isinstance(block.mixer, LightningMixer):
            slopes = block.mixer.slopes(torch.device("cpu"))[:, None, None]
            assert torch.allclose(layer.self_attn.slope_rate, slopes, rtol=2e-5, atol=2e-5)
            decays = layer.self_attn.decay_factors(slopes)
            names = ("query_decay", "key_decay", "diagonal_decay")
            for name, value in zip(("slope_rate", *names), (slopes, *decays), strict=True):
                getattr(layer.self_attn, name).copy_(value)
    return theirs


def draw_ids(rows: int = 2, tokens: int = 37) -> Tensor:
    return torch.randint(0, 60, (rows, tokens), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_it_computes_the_logits_of_transformers(pattern: str, kv_heads: int) -> None:
    theirs = minimax(
        layer_types=PATTERNS[pattern],
        num_hidden_layers=len(PATTERNS[pattern]),
        num_key_value_heads=kv_heads,
        tie_word_embeddings=kv_heads == 1,
    )
    ours = from_minimax(theirs)
    expected = with_exact_slopes(theirs, ours)(draw_ids()).logits
    assert torch.allclose(ours(draw_ids()).logits, expected, atol=2e-5, rtol=1e-5)


@torch.no_grad()
def test_one_expert_is_a_dense_mlp() -> None:
    theirs = minimax(
        num_local_experts=1,
        num_experts_per_tok=1,
        layer_types=[LIGHTNING, SOFTMAX],
        num_hidden_layers=2,
    )
    ours = from_minimax(theirs)
    assert ours.config.num_local_experts == 1 and "router" not in str(list(ours.state_dict()))
    expected = with_exact_slopes(theirs, ours)(draw_ids()).logits
    assert torch.allclose(ours(draw_ids()).logits, expected, atol=2e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("experts", [1, 3])
@pytest.mark.parametrize("tied", [True, False])
def test_it_goes_to_transformers_and_back_unchanged(experts: int, tied: bool) -> None:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=60,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        layer_types=PATTERNS["3:1"],
        num_local_experts=experts,
        tie_word_embeddings=tied,
        conv_width=0,
        full_attn_alpha_factor=1.2,
        initializer_range=0.2,
    )
    ours = HybridForCausalLM(config).eval()
    theirs = to_minimax(ours)
    expected = ours(draw_ids()).logits
    assert torch.allclose(with_exact_slopes(theirs, ours)(draw_ids()).logits, expected, atol=2e-5)
    again = from_minimax(theirs)
    assert torch.equal(again(draw_ids()).logits, expected)
    same = ("layer_types", "rotary_dim", "tie_word_embeddings", "rope_theta", "mlp_alpha_factor")
    assert all(getattr(again.config, name) == getattr(config, name) for name in same)


@pytest.mark.parametrize("experts", [1, 3])
def test_muon_sees_the_matrices_that_transformers_keeps_apart(experts: int) -> None:
    theirs = minimax(
        layer_types=[LIGHTNING, SOFTMAX],
        num_hidden_layers=2,
        num_local_experts=experts,
        num_experts_per_tok=min(2, experts),
    )
    ours = from_minimax(theirs)
    named, fused = dict(ours.named_parameters()), ours.fused_matrices()

    def pieces(name: str) -> list[Tensor]:
        return FusedMatrix(named[name], *fused[name]).pieces

    q, k, v = pieces("layers.1.mixer.qkv_proj.weight")
    attention = theirs.model.layers[1].self_attn
    assert torch.equal(q, attention.q_proj.weight)
    assert torch.equal(k, attention.k_proj.weight)
    assert torch.equal(v, attention.v_proj.weight)
    lightning = theirs.model.layers[0].self_attn.qkv_proj.weight.view(4, 3, 12, 32)
    for part, piece in enumerate(pieces("layers.0.mixer.qkv_proj.weight")):
        assert torch.equal(piece, lightning[:, part].flatten(0, 1))
    stack = theirs.model.layers[0].mlp.experts
    if experts == 1:
        halves = pieces("layers.0.mlp.gate_up_proj.weight")
    else:
        halves = pieces("layers.0.mlp.experts.gate_up_proj")
        downs = pieces("layers.0.mlp.experts.down_proj")
        assert all(torch.equal(one, down) for one, down in zip(downs, stack.down_proj, strict=True))
    expected = [half for expert in stack.gate_up_proj for half in expert.chunk(2)]
    assert all(torch.equal(one, half) for one, half in zip(halves, expected, strict=True))
    assert ours.tables() == {
        "embedding.weight",
        "lm_head.weight",
        *(f"layers.{layer}.mlp.router.weight" for layer in range(2) if experts > 1),
    }


def test_it_reads_the_names_of_files(tmp_path) -> None:
    theirs = minimax(layer_types=PATTERNS["3:1"], num_hidden_layers=4)
    theirs.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert any("block_sparse_moe.experts.3.w2" in name for name in stored)
    config = hybrid_config(theirs.config)
    expected = hybrid_weights(config, theirs.state_dict())
    actual = hybrid_weights(config, stored)
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(ValueError, match="conv_width is 3"):
        minimax_config(HybridConfig())
    with pytest.raises(ValueError, match="slope_schedule is 'alibi'"):
        minimax_config(HybridConfig(conv_width=0, slope_schedule="alibi"))
    with pytest.raises(ValueError, match="linear_attn_norm_eps is 0.001"):
        minimax_config(HybridConfig(conv_width=0, linear_attn_norm_eps=1e-3))
    with pytest.raises(ValueError, match="sliding_window is 8"):
        hybrid_config(MiniMaxConfig(sliding_window=8))
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(ValueError, match="rope_type is 'yarn'"):
        hybrid_config(MiniMaxConfig(rope_parameters=yarn))


def test_it_says_where_transformers_departs_from_the_published_model(caplog) -> None:
    assert departures(HybridConfig(conv_width=0)) == []
    partial = HybridConfig(
        conv_width=0, hidden_size=24, num_attention_heads=3, rotary_dim=4, vocab_size=60
    )
    to_minimax(HybridForCausalLM(partial))
    assert "rotates all 8 dimensions, not 4" in caplog.text
    assert "slopes of 3 heads" in caplog.text
    assert hybrid_config(minimax_config(partial)).rotary_dim == 4
    named = MiniMaxConfig(num_attention_heads=4, hidden_size=32, num_key_value_heads=4)
    named.rotary_dim = 2
    assert hybrid_config(named).rotary_dim == 2


def test_the_configuration_of_m1_gives_its_published_size() -> None:
    """456 B parameters (2506.13585); 456.09 B by the sum over its config.json."""
    config = HybridConfig(
        vocab_size=200_064,
        hidden_size=6144,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=9216,
        num_hidden_layers=80,
        num_local_experts=32,
        rope_theta=1e7,
        rotary_dim=64,
        conv_width=0,
        tie_word_embeddings=False,
    )
    assert config.layer_types == ([LIGHTNING] * 7 + [SOFTMAX]) * 10
    assert config.full_attn_alpha_factor == pytest.approx(3.5566, abs=1e-4)
    with torch.device("meta"):
        model = HybridForCausalLM(config)
    assert model.num_parameters() / 1e9 == pytest.approx(456.09, abs=0.01)
