"""States of the hybrid model where other engines lost or mixed them; numbers are bug-table rows."""

import pytest
import torch
from torch import Tensor

from engine.models.hybrid import GenerationCache, HybridCache, HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX
from engine.models.hybrid.decode import Decoder
from engine.models.hybrid.mixers import LightningMixer, SoftmaxMixer

SEVEN_TO_ONE = [LIGHTNING] * 7 + [SOFTMAX]


@pytest.fixture(scope="module")
def model() -> HybridForCausalLM:
    torch.manual_seed(0)
    config = HybridConfig(
        vocab_size=60,
        hidden_size=32,
        num_key_value_heads=2,
        intermediate_size=24,
        num_hidden_layers=8,
        initializer_range=0.2,
    )
    return HybridForCausalLM(config).eval()


def draw_ids(rows: int, tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 60, (rows, tokens), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_04_decodes_and_prefills_in_one_batch_equal_each_alone(model: HybridForCausalLM) -> None:
    ids = draw_ids(4, 40)
    cache = HybridCache.empty(model.config, 4, 40)
    first = torch.tensor([33, 17, 0, 0])
    model.hidden(ids[:2, :33], cache, torch.tensor([0, 1]), first[:2])
    # Rows 0 and 1 decode a token; rows 2 and 3 read 21 and 5.
    lengths = torch.tensor([1, 1, 21, 5])
    batch = torch.zeros(4, 21, dtype=torch.long)
    for row in range(4):
        batch[row, : lengths[row]] = ids[row, first[row] : first[row] + lengths[row]]
    mixed = model.hidden(batch, cache, lengths=lengths)
    expected = model.hidden(ids)
    for row in range(4):
        start, size = int(first[row]), int(lengths[row])
        assert torch.allclose(mixed[row, :size], expected[row, start : start + size], atol=1e-5)


@torch.no_grad()
def test_07_rows_that_only_fill_a_batch_change_no_slot(model: HybridForCausalLM) -> None:
    """A batch of four, then three and a filler in the same shape."""
    cache = HybridCache.empty(model.config, 5, 16)
    model.hidden(draw_ids(4, 6), cache, torch.tensor([0, 1, 2, 3]))
    kept = cache.snapshot(3)
    lengths = torch.tensor([1, 1, 1, 0])
    model.hidden(draw_ids(4, 1, seed=1), cache, torch.tensor([0, 1, 2, 4]), lengths)
    after = cache.snapshot(3)
    assert after.length == kept.length and int(cache.lengths[4]) == 0
    for one, same in zip(after.layers, kept.layers, strict=True):
        assert all(torch.equal(x, same.named()[name]) for name, x in one.named().items())


@torch.no_grad()
@pytest.mark.parametrize("prefix", [8, 70, 300])
def test_09_a_short_suffix_after_a_long_prefix_equals_the_full_run(
    model: HybridForCausalLM, prefix: int
) -> None:
    ids = draw_ids(1, prefix + 3)
    cache = HybridCache.empty(model.config, 1, prefix + 3)
    model.hidden(ids[:, :prefix], cache)
    suffix = model.hidden(ids[:, prefix:], cache)
    assert torch.allclose(suffix, model.hidden(ids)[:, prefix:], atol=1e-5)


def test_10_each_layer_has_the_kind_that_its_place_says(model: HybridForCausalLM) -> None:
    kinds = [type(block.mixer) for block in model.layers]
    assert kinds == [LightningMixer] * 7 + [SoftmaxMixer]
    memory = HybridCache.empty(model.config, 1, 4).layers
    assert [layer.state is not None for layer in memory] == [True] * 7 + [False]
    assert [layer.keys is not None for layer in memory] == [False] * 7 + [True]


@torch.no_grad()
def test_24_later_layers_read_the_length_from_before_the_pass(model: HybridForCausalLM) -> None:
    """A length that layer 0 moved on would shift the positions of the softmax layer behind it."""
    ids = draw_ids(2, 30)
    past = GenerationCache()
    for part in ids.split([11, 8, 11], dim=1):
        logits = model(part, past_key_values=past).logits
    assert past.memory.lengths.tolist() == [30, 30]
    assert torch.allclose(logits, model(ids).logits[:, 19:], atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("branch", [1, 5, 63, 130])
def test_28_a_snapshot_may_be_taken_at_any_token(model: HybridForCausalLM, branch: int) -> None:
    ids = draw_ids(1, 140)
    cache = HybridCache.empty(model.config, 2, 140)
    model.hidden(ids[:, :branch], cache, torch.tensor([0]))
    cache.restore(1, cache.snapshot(0))
    rest = model.hidden(ids[:, branch:], cache, torch.tensor([1]))
    assert torch.allclose(rest, model.hidden(ids)[:, branch:], atol=1e-5)


@torch.no_grad()
def test_31_prefill_and_decode_give_the_same_logits_past_256_tokens(
    model: HybridForCausalLM,
) -> None:
    ids = draw_ids(1, 330)
    prefill = model(ids).logits[:, 300:]
    cache = HybridCache.empty(model.config, 1, 330)
    model.hidden(ids[:, :300], cache)
    decoder = Decoder(model)
    decoded = [decoder.step(ids[:, token], cache) for token in range(300, 330)]
    logits = model.logits(torch.stack(decoded, dim=1))
    assert torch.allclose(
        torch.log_softmax(logits, dim=-1), torch.log_softmax(prefill, dim=-1), atol=1e-4
    )
