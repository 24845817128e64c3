"""Where transformers' MiniMax is wrong and the hybrid model is right.

Each test asserts both, so that a correction in transformers is noticed: its conversion then has
one reason less to warn. The same weights are in both models.
"""

import math

import pytest
import torch
from torch import Tensor
from transformers import MiniMaxConfig, MiniMaxForCausalLM
from transformers.models.minimax.modeling_minimax import MiniMaxCache

from engine.kernels.lightning import SlopeSchedule, head_slopes
from engine.models.hybrid import GenerationCache, HybridCache, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.models.hybrid.minimax import from_minimax

SEVEN_TO_ONE = [LIGHTNING] * 7 + [SOFTMAX]


def pair(**fields) -> tuple[HybridForCausalLM, MiniMaxForCausalLM]:
    """Ours and theirs, with the same random weights."""
    torch.manual_seed(0)
    options = {
        "vocab_size": 60,
        "hidden_size": 32,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 2,
        "layer_types": SEVEN_TO_ONE,
        "initializer_range": 0.2,
        "block_size": 8,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    } | fields
    config = MiniMaxConfig(**options, num_hidden_layers=len(options["layer_types"]))
    theirs = MiniMaxForCausalLM(config).eval()
    return from_minimax(theirs), theirs


def draw_ids(rows: int, tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 60, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def error(actual: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float((actual - expected).norm() / expected.norm())


@torch.no_grad()
def test_13_a_padded_batch_of_one_equals_the_unpadded_one() -> None:
    """transformers skipped the mask at batch size 1 (46773), and does no more."""
    ours, theirs = pair()
    ids = draw_ids(1, 12)
    padded = torch.cat([draw_ids(1, 9, seed=1), ids], dim=1)
    mask = torch.tensor([[0] * 9 + [1] * 12])
    assert error(ours(padded, attention_mask=mask).logits[:, 9:], ours(ids).logits) < 1e-5
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    known = theirs(padded, attention_mask=mask, position_ids=positions).logits[:, 9:]
    assert error(known, theirs(ids).logits) < 1e-5


@torch.no_grad()
def test_14_a_prompt_read_in_two_chunks_needs_no_position_ids() -> None:
    """Theirs asks layer 0 for the length; a lightning layer there says 0."""
    ours, theirs = pair()
    ids = draw_ids(1, 24)
    past = GenerationCache()
    ours(ids[:, :14], past_key_values=past)
    assert error(ours(ids[:, 14:], past_key_values=past).logits, ours(ids).logits[:, 14:]) < 1e-5
    past = theirs(ids[:, :14], use_cache=True).past_key_values
    assert past.get_seq_length() == 0
    second = theirs(ids[:, 14:], past_key_values=past, use_cache=True).logits
    assert error(second, theirs(ids).logits[:, 14:]) > 0.05


@torch.no_grad()
def test_15_reordered_beams_take_their_states_along() -> None:
    """Theirs reorders keys and values, and leaves the states of lightning layers in place."""
    ours, theirs = pair()
    ids, beams = draw_ids(3, 20), torch.tensor([2, 2, 0])
    expected = ours(ids[beams]).logits[:, 12:]
    past = GenerationCache()
    ours(ids[:, :12], past_key_values=past)
    past.reorder_cache(beams)
    assert error(ours(ids[beams, 12:], past_key_values=past).logits, expected) < 1e-5
    cache = MiniMaxCache()
    theirs(ids[:, :12], past_key_values=cache, use_cache=True)
    before = [state.clone() for state in cache.linear_cache[:7]]
    cache.reorder_cache(beams)
    states = zip(before, cache.linear_cache[:7], strict=True)
    assert all(torch.equal(one, other) for one, other in states)


def test_15_beam_search_with_a_cache_equals_beam_search_without() -> None:
    ours, theirs = pair(layer_types=[SOFTMAX, LIGHTNING, LIGHTNING])
    ids = draw_ids(2, 7)
    options = {"max_new_tokens": 24, "num_beams": 4, "do_sample": False}
    expected = ours.generate(ids, use_cache=False, **options)
    assert torch.equal(ours.generate(ids, **options), expected)
    wrong = theirs.generate(ids, **options)
    assert not torch.equal(wrong, theirs.generate(ids, use_cache=False, **options))


def test_16_a_cast_to_bf16_leaves_the_decay_tables_as_they_are() -> None:
    """Theirs keeps slopes and decays in buffers, which the cast rounds, and stores them."""
    ours, theirs = pair()
    mixer, attention = ours.layers[3].mixer, theirs.model.layers[3].self_attn
    before, slopes = mixer.slopes(torch.device("cpu")).clone(), attention.slope_rate.clone()
    ours.to(torch.bfloat16)
    assert torch.equal(mixer.slopes(torch.device("cpu")), before)
    assert not any("slope" in name or "decay" in name for name in ours.state_dict())
    theirs.to(torch.bfloat16)
    assert attention.slope_rate.dtype == torch.bfloat16
    assert error(attention.slope_rate.float(), slopes) > 1e-3
    assert any("slope" in name for name in theirs.state_dict())


@torch.no_grad()
def test_17_only_the_rotary_part_of_a_head_is_rotated() -> None:
    """Theirs ignores partial_rotary_factor and rotates the whole head."""
    rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
    ours, theirs = pair(layer_types=[SOFTMAX], rope_parameters=rope)
    mixer = ours.layers[0].mixer
    cos, _ = mixer._table(10, ours.embedding.weight)
    assert ours.config.rotary_dim == 4 and cos.shape[1] // 2 == 2
    assert len(theirs.model.rotary_emb.inv_freq) == 4  # of a head of 8: all of it
    attention = theirs.model.layers[0].self_attn
    x, positions = torch.randn(1, 10, 32), torch.arange(10)
    q = (x @ attention.q_proj.weight.T).view(1, 10, 4, 8).transpose(1, 2)
    k = (x @ attention.k_proj.weight.T).view(1, 10, 2, 8).transpose(1, 2)
    v = (x @ attention.v_proj.weight.T).view(1, 10, 2, 8).transpose(1, 2)

    def turn(part: Tensor) -> Tensor:
        """Pairs (i, i + 2) of the first four dimensions as complex numbers."""
        numbers = torch.complex(part[..., :2], part[..., 2:4])
        angles = positions[:, None] * 100.0 ** (-torch.arange(0, 4, 2) / 4)
        turned = numbers * torch.exp(1j * angles)
        return torch.cat([turned.real, turned.imag, part[..., 4:]], dim=-1)

    scores = turn(q) @ turn(k).repeat_interleave(2, dim=1).transpose(-1, -2) / math.sqrt(8)
    scores = scores.masked_fill(torch.ones(10, 10, dtype=torch.bool).triu(1), -torch.inf)
    mixed = torch.softmax(scores, dim=-1) @ v.repeat_interleave(2, dim=1)
    expected = mixed.transpose(1, 2).flatten(2) @ attention.o_proj.weight.T
    assert error(mixer(x, None, None), expected) < 1e-5
    table = theirs.model.rotary_emb(x, positions[None])
    wrong, _ = attention(x, table, None)
    assert error(wrong, expected) > 0.05


@torch.no_grad()
def test_18_the_state_after_right_padding_is_that_at_the_true_length() -> None:
    """Theirs goes on decaying its state over the pads."""
    ours, theirs = pair(layer_types=[LIGHTNING])
    ids = draw_ids(2, 12)
    lengths = torch.tensor([12, 5])
    cache, alone = (HybridCache.empty(ours.config, 2, 12) for _ in range(2))
    ours.hidden(ids, cache, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        ours.hidden(ids[row : row + 1, :length], alone, torch.tensor([row]))
    assert error(cache.layers[0].state, alone.layers[0].state) < 1e-6
    mask = (torch.arange(12) < lengths[:, None]).long()
    padded, true = MiniMaxCache(), MiniMaxCache()
    theirs(ids, attention_mask=mask, past_key_values=padded, use_cache=True)
    theirs(ids[1:, :5], past_key_values=true, use_cache=True)
    assert error(padded.linear_cache[0][1:], true.linear_cache[0]) > 0.05


def test_19_packed_rows_equal_separate_ones_in_outputs_and_gradients() -> None:
    """Theirs does not see positions that start again: states leak from row to row."""
    ours, theirs = pair()
    ids = draw_ids(1, 20)
    parts = ids[:, :8], ids[:, 8:]
    positions = torch.cat([torch.arange(8), torch.arange(12)])[None]

    def separate(model) -> Tensor:
        return torch.cat([model(part).logits for part in parts], dim=1)

    packed, alone = ours(ids, position_ids=positions).logits, separate(ours)
    assert error(packed.detach(), alone.detach()) < 1e-5
    parameters = list(ours.parameters())
    found = torch.autograd.grad(packed.square().sum(), parameters)
    expected = torch.autograd.grad(alone.square().sum(), parameters)
    assert all(error(one, other) < 1e-4 for one, other in zip(found, expected, strict=True))
    with torch.no_grad():
        wrong = theirs(ids, position_ids=positions).logits
        assert error(wrong[:, 8:], separate(theirs)[:, 8:]) > 0.05


@pytest.mark.parametrize("heads", [12, 24, 40])
def test_20_slopes_of_heads_that_are_no_power_of_two_are_the_published_ones(heads: int) -> None:
    """MiniMax-M1 takes those of the next lower power of two, then every second of its double.

    Theirs takes the geometric sequence for every number of heads.
    """
    lower = 2 ** int(math.log2(heads))
    wide = [2 ** (-4 * (head + 1) / lower) for head in range(2 * lower)]
    table = [2 ** (-8 * (head + 1) / lower) for head in range(lower)]
    table += wide[0::2][: heads - lower]
    slopes = head_slopes(SlopeSchedule.MINIMAX, heads, 0, 8)
    assert torch.allclose(slopes, torch.tensor(table) * (1 + 1e-5), rtol=1e-6)
    config = MiniMaxConfig(
        hidden_size=2 * heads,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=4,
        vocab_size=8,
        num_hidden_layers=1,
        layer_types=[LIGHTNING],
        num_local_experts=2,
        block_size=4,
        pad_token_id=None,
    )
    theirs = MiniMaxForCausalLM(config).model.layers[0].self_attn.slope_rate.flatten()
    assert error(theirs, slopes) > 0.05
