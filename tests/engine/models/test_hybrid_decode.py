"""Decoding: each step equals the model's own forward pass, with idle rows and shared prefixes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.hybrid import HybridCache, HybridConfig, HybridForCausalLM
from engine.models.hybrid.decode import Decoder, SharedPrefix

MODELS = {
    "dense": {},
    "shared keys, partial rotary, no convolution": {
        "num_key_value_heads": 2,
        "rotary_dim": 4,
        "conv_width": 0,
    },
    "experts, own head, own factors": {
        "num_local_experts": 4,
        "tie_word_embeddings": False,
        "conv_width": 1,
        "full_attn_beta_factor": 0.7,
        "mlp_beta_factor": 1.3,
        "linear_attn_alpha_factor": 1.1,
    },
    "lightning alone": {"layer_types": ["linear_attention"] * 2},
}
TOKENS = 14


def make_model(options: dict) -> HybridForCausalLM:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=30,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=24,
        initializer_range=0.3,
        **options,
    )
    return HybridForCausalLM(config).double().eval()


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_step_equals_the_whole_pass_whatever_rows_are_live(options: dict, data) -> None:
    model = make_model(options)
    rows = data.draw(st.integers(1, 5))
    begun = data.draw(st.lists(st.integers(0, 6), min_size=rows, max_size=rows))
    seed = data.draw(st.integers(0, 999))
    chance = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 30, (rows, TOKENS), generator=chance)
    expected = model.hidden(ids).detach()
    cache = HybridCache.empty(model.config, rows + 1, TOKENS, torch.float64)
    model.hidden(ids, cache, torch.arange(rows), torch.tensor(begun))
    decoder = Decoder(model)
    while (cache.lengths[:rows] < TOKENS).any():
        at = cache.lengths[:rows].clone()
        live = (torch.rand(rows, generator=chance) < 0.7) & (at < TOKENS)
        if not live.any():
            continue
        given_ids = ids[torch.arange(rows), at.clamp(max=TOKENS - 1)]
        hidden = decoder.step(given_ids, cache, None if live.all() else live)
        torch.testing.assert_close(cache.lengths[:rows], at + live)
        for row in live.nonzero()[:, 0].tolist():
            torch.testing.assert_close(hidden[row], expected[row, at[row]], atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_rows_attend_to_prefixes_they_share_and_to_no_other(options: dict) -> None:
    model = make_model(options)
    chance = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 30, (5, TOKENS), generator=chance)
    ids[1, :6], ids[3, :9] = ids[0, :6], ids[2, :9]  # rows 0 and 1, 2 and 3; row 4 is alone
    before = torch.tensor([6, 6, 9, 9, 0])
    expected = model.hidden(ids).detach()
    cache = HybridCache.empty(model.config, 6, TOKENS, torch.float64)
    prefixes = []
    for first, second in ((0, 1), (2, 3)):
        model.hidden(ids[[first], : before[first]], cache, torch.tensor([first]))
        snapshot = cache.snapshot(first)
        cache.copy(first, [second])
        prefixes.append(SharedPrefix(torch.tensor([first, second]), snapshot))
    cache.lengths[:] = 0
    for layer in cache.layers:
        if layer.keys is not None and layer.values is not None:
            layer.keys.fill_(7.0)
            layer.values.fill_(7.0)
    decoder = Decoder(model)
    for step in range(TOKENS - 9):
        at = before + step
        hidden = decoder.step(ids[torch.arange(5), at], cache, None, prefixes)
        found = expected[torch.arange(5), at]
        torch.testing.assert_close(hidden, found, atol=1e-12, rtol=1e-9)


def test_it_sees_weights_that_were_loaded_after_it_was_made() -> None:
    model, other = make_model({}), make_model({})
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    decoder = Decoder(model)
    model.load_state_dict(other.state_dict())
    cache = HybridCache.empty(model.config, 2, 1, torch.float64)
    hidden = decoder.step(torch.tensor([3]), cache)
    torch.testing.assert_close(hidden, other.hidden(torch.tensor([[3]])).detach()[0])


def test_a_row_without_room_is_refused() -> None:
    model = make_model({})
    cache = HybridCache.empty(model.config, 2, 1, torch.float64)
    decoder = Decoder(model)
    decoder.step(torch.tensor([3]), cache)
    with pytest.raises(ValueError, match="would hold 2 tokens; the cache has room for 1"):
        decoder.step(torch.tensor([3]), cache)
