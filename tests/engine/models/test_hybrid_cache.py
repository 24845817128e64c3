"""The cache of the hybrid model: snapshots at branch points, growth, shared keys, refusals."""

import pytest
import torch
from torch import Tensor

from engine.models.hybrid import HybridCache, HybridConfig, HybridForCausalLM
from engine.models.hybrid.config import LIGHTNING, SOFTMAX


def build(dtype: torch.dtype = torch.float32, **fields) -> HybridForCausalLM:
    torch.manual_seed(0)
    config = {
        "vocab_size": 50,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rotary_dim": 4,
        "head_dim": 10,
        "intermediate_size": 16,
        "layer_types": [LIGHTNING, SOFTMAX, LIGHTNING],
        "num_local_experts": 3,
        "initializer_range": 0.2,
    }
    return HybridForCausalLM(HybridConfig(**config | fields)).to(dtype).eval()


def draw_ids(rows: int, tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 50, (rows, tokens), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
@pytest.mark.parametrize("conv_width", [0, 1, 3])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_with_all_options_the_cache_gives_what_one_pass_gives(
    conv_width: int, kv_heads: int
) -> None:
    model = build(torch.float64, conv_width=conv_width, num_key_value_heads=kv_heads)
    ids = draw_ids(3, 21)
    expected = model.hidden(ids)
    cache = HybridCache.empty(model.config, 4, 21, dtype=torch.float64)
    slots = torch.tensor([2, 0, 3])
    parts = [model.hidden(ids[:, :6], cache, slots), model.hidden(ids[:, 6:15], cache, slots)]
    for token in range(15, 21):
        live = torch.tensor([True, False, True, True])
        step = torch.zeros(4, 1, dtype=torch.long)
        step[slots, 0] = ids[:, token]
        parts.append(model.hidden(step, cache, lengths=live.long())[slots])
    assert torch.allclose(torch.cat(parts, dim=1), expected, atol=1e-12)


@torch.no_grad()
def test_a_restored_snapshot_goes_on_from_its_branch_point() -> None:
    model = build()
    ids = draw_ids(1, 30)
    cache = HybridCache.empty(model.config, 3, 40)
    one, two = torch.tensor([1]), torch.tensor([2])
    model.hidden(ids[:, :12], cache, one)
    snapshot = cache.snapshot(1)
    assert snapshot.length == 12
    model.hidden(draw_ids(1, 9, seed=1), cache, one)  # goes on elsewhere; the snapshot stays
    expected = model.hidden(ids)[:, 12:]
    model.hidden(draw_ids(1, 20, seed=2), cache, two)
    cache.restore(2, snapshot)
    assert cache.lengths.tolist() == [0, 21, 12]
    assert torch.allclose(model.hidden(ids[:, 12:], cache, two), expected, atol=1e-5)
    cache.restore(1, snapshot)  # a second time, where it came from
    assert torch.allclose(model.hidden(ids[:, 12:], cache, one), expected, atol=1e-5)


@torch.no_grad()
def test_a_snapshot_of_another_model_is_refused_and_changes_nothing() -> None:
    model, other = build(), build(head_dim=8)
    cache = HybridCache.empty(model.config, 2, 20)
    foreign = HybridCache.empty(other.config, 1, 20)
    model.hidden(draw_ids(2, 5), cache)
    other.hidden(draw_ids(1, 7), foreign)
    before = cache.snapshot(0)
    with pytest.raises(ValueError, match=r"'state': \(4, 8, 8\).*'state': \(4, 10, 10\)"):
        cache.restore(0, foreign.snapshot(0))
    with pytest.raises(ValueError, match="holds 5 tokens; a slot of this cache has room for 4"):
        HybridCache.empty(model.config, 1, 4).restore(0, before)
    after = cache.snapshot(0)
    assert after.length == 5
    for one, same in zip(after.layers, before.layers, strict=True):
        assert all(torch.equal(x, same.named()[name]) for name, x in one.named().items())


def test_cutting_a_cache_back_is_refused() -> None:
    cache = HybridCache.empty(build().config, 1, 8)
    with pytest.raises(
        NotImplementedError, match="cannot be cut back to 3 tokens: take a snapshot"
    ):
        cache.crop(3)


@torch.no_grad()
def test_a_grown_cache_goes_on() -> None:
    model = build()
    ids = draw_ids(2, 20)
    cache = HybridCache.empty(model.config, 2, 8)
    model.hidden(ids[:, :8], cache)
    cache.grow(20)
    cache.grow(4)  # never shrinks
    assert cache.capacity == 20
    expected = model.hidden(ids)[:, 8:]
    assert torch.allclose(model.hidden(ids[:, 8:], cache), expected, atol=1e-5)


def test_states_are_never_coarser_than_fp32() -> None:
    config = build().config
    for dtype, expected in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        cache = HybridCache.empty(config, 1, 4, dtype)
        assert cache.layers[0].state.dtype == expected
        assert cache.layers[1].keys.dtype == dtype
        assert cache.layers[1].keys.shape == (1, 2, 4, 10)
