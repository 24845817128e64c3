"""Memory against published figures and against the tensors that our own cache holds."""

import pytest
import torch

from engine.models.hybrid import HybridCache, HybridConfig
from engine.planner import kv_bytes_per_token, memory, read_config, shipped, state_bytes


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    # DeepSeek-V3 as published in 2505.09343, table 1; the others are layers * kv heads * 128 * 4.
    [("deepseek-r1", 70.272), ("qwen3-235b-a22b", 192.512), ("minimax-m1", 40.960)],
)
def test_a_token_takes_what_is_published(name: str, kilobytes: float) -> None:
    assert kv_bytes_per_token(shipped(name)) == kilobytes * 1000


def test_a_405b_llama_takes_what_is_published() -> None:
    """2505.09343, table 1: 516.096 KB a token."""
    config = {
        "model_type": "llama",
        "hidden_size": 16384,
        "num_hidden_layers": 126,
        "num_attention_heads": 128,
        "num_key_value_heads": 8,
        "intermediate_size": 53248,
        "vocab_size": 128256,
    }
    model = read_config(config, "llama")
    assert kv_bytes_per_token(model) == 516_096
    assert round(memory(model, 0).weights / 2e9) == 406


@pytest.mark.parametrize("conv_width", [0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_what_the_cache_of_the_hybrid_model_holds(
    conv_width: int, dtype: torch.dtype
) -> None:
    config = HybridConfig(conv_width=conv_width, num_key_value_heads=2)
    model = read_config(config.to_dict(), "hybrid")
    slots, capacity = 3, 50
    cache = HybridCache.empty(config, slots, capacity, dtype)
    tensors = [tensor for tensor in cache.tensors() if tensor is not cache.lengths]
    held = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    one = memory(model, capacity, cache_bytes=dtype.itemsize)
    assert held == slots * one.sequence


def test_states_do_not_grow_and_stay_in_fp32() -> None:
    m1 = shipped("minimax-m1")
    assert state_bytes(m1) == 70 * 64 * 128 * 128 * 4
    short, long = memory(m1, 1000), memory(m1, 2000)
    assert (short.state, 2 * short.kv) == (long.state, long.kv)
    # The state is worth 7,168 tokens of M1's own keys and values, 1,024 of its twin's.
    assert long.state == kv_bytes_per_token(m1) * 7168
    assert long.state == (kv_bytes_per_token(shipped("minimax-m1-softmax")) * 7 // 8) * 1024
