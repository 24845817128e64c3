"""The hybrid model: against transformers' MiniMax, and against itself through cache and files."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, MiniMaxConfig, MiniMaxForCausalLM

from engine.models.hybrid import HybridCache, HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.models.hybrid.mixers import LightningMixer
from engine.models.hybrid.ops import causal_attention, causal_conv, rms_norm


def build(conv_width: int = 3, seed: int = 0, **fields) -> HybridForCausalLM:
    torch.manual_seed(seed)
    config = HybridConfig(
        vocab_size=50,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=48,
        conv_width=conv_width,
        initializer_range=0.2,
        **fields,
    )
    return HybridForCausalLM(config).eval()


def draw_ids(rows: int, tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 50, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def as_minimax(model: HybridForCausalLM) -> MiniMaxForCausalLM:
    """The same weights in transformers' MiniMax, whose mixture of experts has one expert."""
    config, alpha = model.config, model.config.residual_alpha
    theirs = MiniMaxForCausalLM(
        MiniMaxConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_attention_heads,
            layer_types=config.layer_types,
            num_local_experts=1,
            num_experts_per_tok=1,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=False,
            block_size=8,
            full_attn_alpha_factor=alpha,
            linear_attn_alpha_factor=alpha,
            mlp_alpha_factor=alpha,
        )
    ).eval()
    heads, dim = config.num_attention_heads, config.head_dim
    with torch.no_grad():
        theirs.model.embed_tokens.weight.copy_(model.embedding.weight)
        theirs.lm_head.weight.copy_(model.embedding.weight)
        theirs.model.norm.weight.copy_(model.norm.weight)
        for ours, layer in zip(model.layers, theirs.model.layers, strict=True):
            attention, mixer = layer.self_attn, ours.mixer
            if isinstance(mixer, LightningMixer):
                attention.qkv_proj.weight.copy_(mixer.qkv_proj.weight)
                attention.output_gate.weight.copy_(mixer.output_gate.weight)
                attention.out_proj.weight.copy_(mixer.out_proj.weight)
                attention.norm.weight.copy_(mixer.norm.weight)
            else:
                parts = mixer.qkv_proj.weight.view(heads, 3, dim, -1)
                for part, name in enumerate(("q_proj", "k_proj", "v_proj")):
                    getattr(attention, name).weight.copy_(parts[:, part].flatten(0, 1))
                attention.o_proj.weight.copy_(mixer.out_proj.weight)
            layer.input_layernorm.weight.copy_(ours.mixer_norm.weight)
            layer.post_attention_layernorm.weight.copy_(ours.mlp_norm.weight)
            layer.mlp.experts.gate_up_proj.copy_(ours.mlp.gate_up_proj.weight[None])
            layer.mlp.experts.down_proj.copy_(ours.mlp.down_proj.weight[None])
    return theirs


@torch.no_grad()
def test_without_its_convolution_it_is_minimax() -> None:
    model = build(conv_width=0, layer_types=[LIGHTNING, LIGHTNING, LIGHTNING, SOFTMAX])
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.uniform_(0.5, 1.5)
    ids = draw_ids(3, 29)
    expected = as_minimax(model)(ids).logits
    # Their slopes have another 1e-5 in the layer factor.
    assert torch.allclose(model(ids).logits, expected, atol=2e-4)


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 40), min_size=1, max_size=4),
    conv_width=st.sampled_from([0, 1, 3]),
    seed=st.integers(0, 100),
    data=st.data(),
)
@torch.no_grad()
def test_reading_in_ragged_parts_and_decoding_equals_one_pass(
    lengths: list[int], conv_width: int, seed: int, data: st.DataObject
) -> None:
    model = build(conv_width, seed)
    ids = draw_ids(len(lengths), max(lengths), seed)
    expected = model.hidden(ids)
    cache = HybridCache.empty(model.config, len(lengths) + 2, 64)
    rows = data.draw(st.permutations(range(len(lengths) + 2)))[: len(lengths)]
    slots = torch.tensor(rows)
    done = torch.zeros(len(lengths), dtype=torch.long)
    for _ in range(2):
        parts = torch.tensor(
            [
                data.draw(st.integers(1, max(1, (n - d) // 2)))
                for n, d in zip(lengths, done.tolist(), strict=True)
            ]
        ).minimum(torch.tensor(lengths) - done)
        keep = parts > 0
        if not keep.any():
            break
        piece = torch.zeros(int(keep.sum()), int(parts.max()), dtype=torch.long)
        for i, row in enumerate(keep.nonzero()[:, 0].tolist()):
            start = int(done[row])
            piece[i, : int(parts[row])] = ids[row, start : start + int(parts[row])]
        hidden = model.hidden(piece, cache, slots[keep], parts[keep])
        for i, row in enumerate(keep.nonzero()[:, 0].tolist()):
            start, size = int(done[row]), int(parts[row])
            assert torch.allclose(hidden[i, :size], expected[row, start : start + size], atol=1e-5)
        done += parts
    while (done < torch.tensor(lengths)).any():
        live = torch.zeros(cache.slots, dtype=torch.bool)
        tokens = torch.zeros(cache.slots, 1, dtype=torch.long)
        for row, slot in enumerate(rows):
            if done[row] < lengths[row]:
                live[slot] = True
                tokens[slot, 0] = ids[row, done[row]]
        hidden = model.hidden(tokens, cache, lengths=live.long())
        for row, slot in enumerate(rows):
            if live[slot]:
                assert torch.allclose(hidden[slot, 0], expected[row, done[row]], atol=1e-5)
                done[row] += 1
    assert cache.lengths[slots].tolist() == lengths


@torch.no_grad()
def test_rows_without_a_new_token_stay_bit_identical() -> None:
    model = build()
    cache = HybridCache.empty(model.config, 4, 32)
    model.hidden(draw_ids(4, 7), cache)
    before = cache.select([0, 1, 2, 3])
    live = torch.tensor([True, False, True, False])
    model.hidden(draw_ids(4, 1), cache, lengths=live.long())
    assert cache.lengths.tolist() == [8, 7, 8, 7]
    for layer, old in zip(cache.layers, before.layers, strict=True):
        for name in ("state", "tail", "keys", "values"):
            new, kept = getattr(layer, name), getattr(old, name)
            if new is None:
                continue
            if name in ("keys", "values"):  # what no query reads is nobody's
                new, kept = new[:, :, :7], kept[:, :, :7]
            assert torch.equal(new[[1, 3]], kept[[1, 3]])


@torch.no_grad()
def test_forks_and_reordered_slots_go_on_as_their_source() -> None:
    model = build()
    ids = draw_ids(3, 20)
    cache = HybridCache.empty(model.config, 5, 32)
    model.hidden(ids[:, :11], cache, torch.tensor([0, 1, 2]))
    cache.copy(1, [3, 4])
    expected = model.hidden(ids)[:, 11:]
    forked = cache.select([4, 2, 1, 3])
    for chosen, rows in ((forked, [1, 2, 1, 1]), (cache, [0, 1, 2, 1, 1])):
        hidden = model.hidden(ids[rows, 11:], chosen)
        assert torch.allclose(hidden, expected[rows], atol=1e-5)


@torch.no_grad()
def test_a_reset_slot_starts_anew() -> None:
    model = build()
    cache = HybridCache.empty(model.config, 2, 32)
    model.hidden(draw_ids(2, 9, seed=1), cache)
    cache.reset([1])
    ids = draw_ids(1, 6, seed=2)
    hidden = model.hidden(ids, cache, torch.tensor([1]))
    assert torch.allclose(hidden, model.hidden(ids), atol=1e-5)


def test_it_refuses_more_tokens_than_the_cache_has_room_for() -> None:
    model = build()
    cache = HybridCache.empty(model.config, 1, 8)
    with pytest.raises(ValueError, match="9 tokens; the cache has room for 8"):
        model.hidden(draw_ids(1, 9), cache)


@torch.no_grad()
def test_padding_on_either_side_changes_nothing() -> None:
    model = build()
    ids = draw_ids(2, 12)
    padded = torch.cat([ids, torch.zeros(2, 30, dtype=torch.long)], dim=1)
    expected = model(ids).logits
    assert torch.allclose(model(padded).logits[:, :12], expected, atol=1e-5)
    ragged = torch.stack([padded[0].roll(30), padded[1].roll(7)])
    mask = torch.zeros(2, 42, dtype=torch.long)
    mask[0, 30:] = mask[1, 7:19] = 1
    logits = model(ragged, attention_mask=mask).logits
    assert torch.allclose(logits[0, 30:], expected[0], atol=1e-5)
    assert torch.allclose(logits[1, 7:19], expected[1], atol=1e-5)


@torch.no_grad()
def test_transformers_loads_what_was_saved(tmp_path) -> None:
    model = build()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = draw_ids(2, 10)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert AutoConfig.from_pretrained(tmp_path).layer_types == model.config.layer_types
    generated = loaded.generate(ids, max_new_tokens=3, do_sample=False)
    assert generated[:, 10].tolist() == model(ids).logits[:, -1].argmax(-1).tolist()


def test_decay_rates_are_no_weights_and_survive_a_cast() -> None:
    model = build()
    assert not any("slope" in name for name in model.state_dict())
    mixer = model.layers[0].mixer
    before = mixer.slopes(torch.device("cpu")).clone()
    model.body_(torch.bfloat16)
    assert mixer.slopes(torch.device("cpu")).dtype == torch.float32
    assert torch.equal(mixer.slopes(torch.device("cpu")), before)
    assert model.embedding.weight.dtype == torch.float32


def test_it_trains_after_it_was_used_in_inference_mode() -> None:
    """Rotary tables are kept over models: one that is made in inference mode cannot be saved."""
    model, ids = build(rope_theta=4321.0), draw_ids(2, 9)
    with torch.inference_mode():
        model(ids)
    model(ids, labels=ids).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@torch.no_grad()
def test_it_is_close_to_itself_in_bf16() -> None:
    model = build()
    ids = draw_ids(2, 40)
    expected = torch.log_softmax(model(ids).logits, dim=-1)
    actual = torch.log_softmax(model.body_(torch.bfloat16)(ids).logits, dim=-1)
    assert float((actual - expected).abs().mean()) < 0.02


def test_the_gradients_of_the_elementwise_parts_are_right() -> None:
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    assert torch.autograd.gradcheck(lambda x, w: rms_norm(x, w, 1e-6), (leaf(2, 3, 8), leaf(8)))
    x, weight, tail = leaf(2, 6, 2, 4), leaf(3, 2, 4), leaf(2, 2, 2, 4)
    assert torch.autograd.gradcheck(lambda x, w: causal_conv(x, w), (x, weight))
    assert torch.autograd.gradcheck(causal_conv, (x, weight, tail))


def test_the_convolution_equals_torchs() -> None:
    x, weight = torch.randn(2, 9, 3, 4), torch.randn(3, 3, 4)
    flat = x.flatten(2).transpose(1, 2)
    kernel = weight.flatten(1).flip(0).T[:, None]
    expected = torch.nn.functional.conv1d(flat, kernel, groups=12, padding=2)[..., :9]
    assert torch.allclose(causal_conv(x, weight).flatten(2), expected.transpose(1, 2), atol=1e-5)


def test_short_bf16_attention_equals_the_fused_one() -> None:
    q, k, v = (torch.randn(2, 2, 37, 16) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    actual = causal_attention(q.bfloat16(), k.bfloat16(), v.bfloat16())
    assert float((actual - expected).abs().max()) < 0.06
