"""Numbers that published kernels got wrong: one test for each known bug of the operation.

Each docstring names where the bug was. The oracle is the fp64 token recurrence or a closed form.
"""

import importlib.util

import pytest
import torch
from torch import Tensor

from engine.kernels.lightning import (
    SlopeSchedule,
    chunked,
    head_slopes,
    lightning_attention,
    lightning_step,
    reference,
)
from tests.engine.kernels.lightning_cases import (
    SLOPES,
    head_error,
    inputs,
    outputs_and_gradients,
)


def both(tensors: list[Tensor], **form) -> tuple[list[Tensor], list[Tensor]]:
    actual = outputs_and_gradients(lightning_attention, tensors, SLOPES, **form)
    wide = [x.double() for x in tensors]
    return actual, outputs_and_gradients(reference.lightning_attention, wide, SLOPES, **form)


@pytest.mark.parametrize("tokens", [1, 255, 256, 257, 600])
def test_tokens_see_the_state_before_their_chunk_with_the_right_decay(tokens: int) -> None:
    """vLLM 0.32, lightning_attn.py: prefill lacked one factor exp(-slope) against decode."""
    actual, expected = both(inputs(tokens, torch.float32))
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < 1e-5


def test_a_wrong_exponent_shows_at_unit_scale_beyond_two_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM's kernel tests: 16 tokens below a block of 256, inputs times 0.01, tolerance 0.15."""
    decays = chunked._decays

    def short(slopes: Tensor, *rest) -> tuple[Tensor, ...]:
        within, query, key, state = decays(slopes, *rest)
        return within, query * torch.exp(slopes)[:, None, None], key, state

    monkeypatch.setattr(chunked, "_decays", short)
    q, k, v, _ = inputs(40, torch.float32)  # chunks of 16
    expected, _ = reference.lightning_attention(q, k, v, SLOPES)
    actual, _ = lightning_attention(q, k, v, SLOPES)
    for head in range(4):
        assert head_error(actual[:, [head]], expected[:, [head]]) > 1e-3 * float(SLOPES[head])
    short_run = actual[:, :, :16] - expected[:, :, :16]
    assert short_run.norm() / expected[:, :, :16].norm() < 1e-5  # one chunk does not show it


def test_a_slow_head_keeps_its_state_over_8192_tokens() -> None:
    """vLLM #19592, MiniMax-M1 #26: states in bf16 lost slow heads, text came out garbled."""
    slope = torch.tensor([5e-5])
    q, k, v, _ = inputs(8192, torch.float32, heads=1)
    distance = torch.arange(8191, -1, -1, dtype=torch.float64)
    kept = k.double() * torch.exp(-slope.double() * distance)[:, None]
    expected = kept.transpose(-1, -2) @ v.double()
    _, prefilled = lightning_attention(q, k, v, slope)
    assert head_error(prefilled, expected) < 1e-4
    decoded = torch.zeros(1, 1, 16, 16)
    for t in range(8192):
        lightning_step(q[:, :, t], k[:, :, t], v[:, :, t], slope, decoded)
    assert head_error(decoded, expected) < 1e-4
    with pytest.raises(TypeError, match="must be torch.float32"):
        lightning_attention(
            q.bfloat16(), k.bfloat16(), v.bfloat16(), slope, initial_state=decoded.bfloat16()
        )


def test_a_tail_that_fills_no_chunk_is_finite_over_memory_of_nan() -> None:
    """vllm-ascend #10276: the tail block was not masked."""
    tensors = inputs(53, torch.float32)
    for x in tensors[:3]:
        storage = torch.full((1, 4, 80, 16), torch.nan)
        storage[:, :, :53] = x
        x.set_(storage[:, :, :53])
    assert not tensors[0].is_contiguous()
    actual, expected = both(tensors)
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < 1e-5


@pytest.mark.parametrize("tokens", [1, 100, 255, 300, 913])
def test_every_row_is_written_over_poisoned_buffers(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenNLPLab #27, #28: the number of blocks was rounded down, rows stayed uninitialised."""
    monkeypatch.setattr(torch, "empty_like", lambda x: torch.full_like(x, torch.nan))
    monkeypatch.setattr(
        Tensor, "new_empty", lambda x, *shape, **kind: x.new_full(shape, torch.nan, **kind)
    )
    actual, expected = both(inputs(tokens, torch.float32))
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < 1e-5


def test_there_is_no_scale_and_the_decay_is_minimaxs() -> None:
    """fla's "lightning attention" decays linearly in the head index and scales by 1/sqrt(d)."""
    slopes = head_slopes(SlopeSchedule.MINIMAX, 8, 0, 2).double()
    assert slopes.tolist() == pytest.approx([2**-h * (1 + 1e-5) for h in range(1, 9)])
    q, k, v, _ = inputs(2, heads=8)
    output, _ = lightning_attention(q, k, v, slopes)
    own = (q * k).sum(-1, keepdim=True) * v
    assert head_error(output[:, :, :1], own[:, :, :1]) < 1e-12
    earlier = (q[:, :, 1:] * k[:, :, :1]).sum(-1, keepdim=True) * v[:, :, :1]
    decayed = own[:, :, 1:] + torch.exp(-slopes)[:, None, None] * earlier
    assert head_error(output[:, :, 1:], decayed) < 1e-12


@pytest.mark.parametrize("schedule", SlopeSchedule)
def test_the_energy_of_an_impulse_falls_with_distance(schedule: SlopeSchedule) -> None:
    """vLLM #48999: the sign of a decay needed a test of its own."""
    slopes = head_slopes(schedule, 4, 1, 4)
    q = torch.ones(1, 4, 20, 8, dtype=torch.float64)  # three chunks
    k = v = torch.cat([q[:, :, :1], torch.zeros_like(q[:, :, 1:])], dim=2)
    output, _ = lightning_attention(q, k, v, slopes)
    energy = output.norm(dim=-1)[0]
    ratios = energy[:, 1:] / energy[:, :-1]
    assert torch.allclose(ratios, torch.exp(-slopes.double())[:, None].expand_as(ratios))
    assert ((energy[:, 1:] < energy[:, :-1]) | (slopes[:, None] == 0)).all()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is Linux only")
def test_the_interpreter_is_refused_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton #11584, #4972: its interpreter adds bit patterns of bf16 and truncates to it."""
    import triton

    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    q = torch.ones(1, 1, 4, 16, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="interpreter rounds wrongly"):
        lightning_attention(q, q, q, torch.ones(1), implementation="triton")
