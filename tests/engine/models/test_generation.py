"""transformers' interface of the hybrid model: generate, its cache, padding, positions, losses."""

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from engine.models.hybrid import GenerationCache, HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.models.hybrid.moe import balancing_loss

PAD, END = 0, 49


@pytest.fixture(scope="module")
def model() -> HybridForCausalLM:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=50,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=16,
        num_local_experts=4,
        layer_types=[LIGHTNING] * 3 + [SOFTMAX],
        initializer_range=0.2,
        embedding_std=1.0,
        tie_word_embeddings=False,
        pad_token_id=PAD,
        eos_token_id=END,
    )
    return HybridForCausalLM(config).eval()


def draw_ids(rows: int, tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 49, (rows, tokens), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "how",
    [
        {"max_new_tokens": 60},  # the cache grows
        {"max_new_tokens": 16, "num_beams": 4},
        {"max_new_tokens": 12, "num_beams": 3, "num_return_sequences": 3},
    ],
)
def test_generate_gives_the_same_with_the_cache_as_without(
    model: HybridForCausalLM, how: dict[str, int]
) -> None:
    """Beam search reorders the cache in each step: states must move with keys and values."""
    ids = draw_ids(3, 9)
    options = {"do_sample": False, **how}
    with_cache = model.generate(ids, **options)
    assert with_cache.shape[1] == 9 + how["max_new_tokens"]
    assert torch.equal(with_cache, model.generate(ids, use_cache=False, **options))
    cache = GenerationCache()
    assert torch.equal(with_cache, model.generate(ids, past_key_values=cache, **options))
    assert cache.get_seq_length() == with_cache.shape[1] - 1


def test_generate_takes_prompts_of_different_lengths(model: HybridForCausalLM) -> None:
    prompts = [draw_ids(1, length, seed=length)[0] for length in (4, 11, 7)]
    ids = torch.stack([torch.nn.functional.pad(one, (11 - len(one), 0)) for one in prompts])
    together = model.generate(
        ids, attention_mask=(ids != PAD).long(), max_new_tokens=12, do_sample=False
    )
    for row, prompt in enumerate(prompts):
        alone = model.generate(prompt[None], max_new_tokens=12, do_sample=False)
        assert torch.equal(
            together[row, 11 : 11 + alone.shape[1] - len(prompt)], alone[0, len(prompt) :]
        )


def test_generate_reads_long_prompts_in_chunks(model: HybridForCausalLM) -> None:
    ids = draw_ids(2, 23)
    expected = model.generate(ids, max_new_tokens=10, do_sample=False)
    chunked = model.generate(ids, max_new_tokens=10, do_sample=False, prefill_chunk_size=8)
    assert torch.equal(chunked, expected)


@torch.no_grad()
def test_a_prompt_read_in_chunks_needs_no_position_ids(model: HybridForCausalLM) -> None:
    ids = draw_ids(2, 20)
    expected = model(ids).logits
    cache = GenerationCache()
    parts = [model(part, past_key_values=cache).logits for part in ids.split([7, 1, 12], dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), expected, atol=1e-5)
    assert cache.get_seq_length() == 20 and cache.batch_size == 2


@torch.no_grad()
def test_a_cache_repeats_selects_and_starts_anew(model: HybridForCausalLM) -> None:
    ids = draw_ids(2, 16)
    expected = model(ids).logits[:, 10:]
    cache = GenerationCache()
    model(ids[:, :10], past_key_values=cache)
    cache.batch_repeat_interleave(3)
    cache.batch_select_indices(torch.tensor([5, 0]))
    actual = model(ids[[1, 0], 10:], past_key_values=cache).logits
    assert torch.allclose(actual, expected[[1, 0]], atol=1e-5)
    cache.reset()
    again = model(ids[:1], past_key_values=cache).logits[:, 10:]
    assert torch.allclose(again, expected[:1], atol=1e-5)
    with pytest.raises(NotImplementedError, match="cannot forget its last 2 tokens"):
        cache.crop(2)


@torch.no_grad()
def test_positions_that_start_again_pack_sequences(model: HybridForCausalLM) -> None:
    ids = draw_ids(2, 14)
    positions = torch.stack([torch.arange(14), torch.cat([torch.arange(5), torch.arange(9)])])
    mask = torch.ones_like(ids)
    packed = model(ids, position_ids=positions, attention_mask=mask).logits
    assert torch.allclose(packed[0], model(ids[:1]).logits[0], atol=1e-5)
    for part in (slice(0, 5), slice(5, 14)):
        assert torch.allclose(packed[1, part], model(ids[1:, part]).logits[0], atol=1e-5)


@torch.no_grad()
def test_what_it_cannot_honour_is_refused(model: HybridForCausalLM) -> None:
    ids = draw_ids(2, 6)
    with pytest.raises(ValueError, match="hides tokens inside row 1"):
        model(ids, attention_mask=torch.tensor([[1] * 6, [1, 0, 1, 1, 1, 1]]))
    with pytest.raises(ValueError, match=r"shape \[2, 1, 6, 6\]"):
        model(ids, attention_mask=torch.ones(2, 1, 6, 6))
    with pytest.raises(ValueError, match="count up by one from 0"):
        model(ids, position_ids=torch.arange(3, 9)[None])
    cache = GenerationCache()
    model(ids, past_key_values=cache)
    with pytest.raises(ValueError, match=r"begin with \[0\], but the cache holds \[6, 6\]"):
        model(ids, past_key_values=cache, position_ids=torch.arange(6)[None])
    with pytest.raises(ValueError, match="holds 2 sequences, input_ids 1"):
        model(ids[:1], past_key_values=cache)
    with pytest.raises(ValueError, match="DynamicCache"):
        model(ids, past_key_values=DynamicCache())
    with pytest.raises(ValueError, match="inputs_embeds, output_attentions"):
        model(ids, inputs_embeds=torch.zeros(2, 6, 32), output_attentions=True)
    with pytest.raises(ValueError, match="a cache of its own"):
        model.generate(ids, max_new_tokens=2, cache_implementation="static")


def test_the_loss_ignores_what_is_masked_and_counts_as_told(model: HybridForCausalLM) -> None:
    ids = draw_ids(2, 8)
    labels = ids.clone()
    labels[:, :5] = -100
    logits = model(ids).logits
    log_p = torch.log_softmax(logits[:, 4:7], dim=-1)
    losses = -log_p.gather(2, ids[:, 5:, None])[..., 0]
    assert torch.allclose(model(ids, labels=labels).loss, losses.mean(), atol=1e-6)
    counted = model(ids, labels=labels, num_items_in_batch=10).loss
    assert torch.allclose(counted, losses.sum() / 10, atol=1e-6)
    assert torch.equal(model(ids, logits_to_keep=2).logits, logits[:, -2:])
    assert isinstance(model(ids, return_dict=False), tuple)


def test_the_balancing_loss_leaves_padding_out(model: HybridForCausalLM) -> None:
    ids = draw_ids(2, 8)
    expected = balancing_loss(model.routed(ids).routings)
    padded = torch.cat([torch.zeros(2, 5, dtype=torch.long), ids], dim=1)
    mask = (padded != PAD).long()
    plain = model(ids, labels=ids).loss
    model.config.router_aux_loss_coef = 0.5
    try:
        labels = torch.where(mask.cumsum(1) > 1, padded, -100)  # a pad predicts the first one
        out = model(padded, attention_mask=mask, labels=labels)
    finally:
        model.config.router_aux_loss_coef = 0.0
    assert torch.allclose(out.aux_loss, expected, atol=1e-5)
    assert torch.allclose(out.loss, plain + 0.5 * expected, atol=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_changes_no_gradient(
    model: HybridForCausalLM, reentrant: bool
) -> None:
    ids = draw_ids(2, 20)

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(model(ids, labels=ids).loss, list(model.parameters())))

    expected = gradients()
    calls = []
    hook = model.layers[0].mixer.register_forward_hook(lambda *_: calls.append(1))
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    try:
        loss = model(ids, labels=ids).loss
        loss.backward()
        assert len(calls) == 2
        with pytest.raises(ValueError, match="write the cache twice"):
            model(ids, use_cache=True)
    finally:
        model.gradient_checkpointing_disable()
        model.eval()
        hook.remove()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-6)
        parameter.grad = None


def test_loading_in_bf16_keeps_tables_and_routers_in_fp32(
    model: HybridForCausalLM, tmp_path
) -> None:
    model.save_pretrained(tmp_path)
    loaded = HybridForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    kept = {name for name, p in loaded.named_parameters() if p.dtype == torch.float32}
    assert kept == loaded.tables()
    assert len(kept) == 6
    assert loaded.layers[0].mixer.qkv_proj.weight.dtype == torch.bfloat16
    ids = draw_ids(2, 9)
    assert loaded(ids).logits.dtype == torch.float32
    generated = loaded.generate(ids, max_new_tokens=4, do_sample=False)
    assert generated[:, 9].tolist() == loaded(ids).logits[:, -1].argmax(-1).tolist()
