"""The dense form of lightning attention: every implementation against the fp64 recurrence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.lightning import SlopeSchedule, chunked, head_slopes, lightning_step, reference
from tests.engine.kernels.lightning_cases import (
    BOUNDS,
    IMPLEMENTATIONS,
    SLOPES,
    double,
    head_error,
    inputs,
    outputs_and_gradients,
)

LENGTHS = [1, 63, 64, 65, 255, 257, 600, 913]


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("tokens", LENGTHS)
def test_it_equals_the_recurrence(dtype: torch.dtype, tokens: int) -> None:
    tensors = inputs(tokens, dtype, batch=2)
    actual = outputs_and_gradients(chunked.lightning_attention, tensors, SLOPES)
    expected = outputs_and_gradients(reference.lightning_attention, double(tensors), SLOPES)
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < BOUNDS[dtype]


def test_the_recurrence_equals_its_closed_form() -> None:
    """o_i = sum over j <= i of exp(-s (i-j)) (q_i . k_j) v_j, computed as one masked product."""
    q, k, v, _ = inputs(70)
    index = torch.arange(70)
    distance = (index[:, None] - index).double()
    decay = torch.exp(-SLOPES.double()[:, None, None] * distance).tril()
    expected = (q @ k.transpose(-1, -2) * decay) @ v
    actual, _ = reference.lightning_attention(q, k, v, SLOPES)
    assert head_error(actual, expected) < 1e-12


def test_values_may_be_wider_than_keys() -> None:
    tensors = inputs(100, batch=2, dim=16, width=24)
    actual = outputs_and_gradients(chunked.lightning_attention, tensors, SLOPES)
    expected = outputs_and_gradients(reference.lightning_attention, tensors, SLOPES)
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < 1e-12


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_shifted_decay_is_noticed(name: str) -> None:
    """The bound would catch an implementation that decays once too often from the state."""
    tensors = inputs(65, torch.float32)
    shifted = [*tensors[:3], tensors[3] * torch.exp(-SLOPES)[:, None, None]]
    module = IMPLEMENTATIONS[name]
    actual = outputs_and_gradients(module.lightning_attention, shifted, SLOPES)
    expected = outputs_and_gradients(reference.lightning_attention, tensors, SLOPES)
    assert head_error(actual[0], expected[0]) > 1e-3


def test_a_shifted_query_decay_inside_the_chunks_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true_decays = chunked._decays

    def one_exponent_short(slopes: Tensor, *rest) -> tuple[Tensor, ...]:
        within, query, key, state = true_decays(slopes, *rest)
        return within, query * torch.exp(slopes)[:, None, None], key, state

    monkeypatch.setattr(chunked, "_decays", one_exponent_short)
    tensors = inputs(65, torch.float32)
    actual = outputs_and_gradients(chunked.lightning_attention, tensors, SLOPES)
    expected = outputs_and_gradients(reference.lightning_attention, tensors, SLOPES)
    assert head_error(actual[0], expected[0]) > 1e-3


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    extra=st.integers(0, 20),
    layer=st.integers(0, 7),
    seed=st.integers(0, 2**16),
)
def test_padding_changes_nothing(
    name: str, lengths: list[int], extra: int, layer: int, seed: int
) -> None:
    """Rows of different lengths, their tails poisoned with NaN, equal each row alone."""
    attention = IMPLEMENTATIONS[name].lightning_attention
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, layer, 8)
    tensors = inputs(max(lengths) + extra, seed=seed, batch=len(lengths), dim=8)
    for row, length in enumerate(lengths):
        for x in tensors[:3]:
            x[row, :, length:] = torch.nan
    q, k, v, state = tensors
    out, final, d_q, d_k, d_v, d_state = outputs_and_gradients(
        attention, tensors, slopes, lengths=torch.tensor(lengths)
    )
    assert all(bool(torch.isfinite(x).all()) for x in (out, final, d_q, d_k, d_v, d_state))
    for row, length in enumerate(lengths):
        alone, alone_final = reference.lightning_attention(
            q[row : row + 1, :, :length],
            k[row : row + 1, :, :length],
            v[row : row + 1, :, :length],
            slopes,
            initial_state=state[row : row + 1],
        )
        assert head_error(out[row : row + 1, :, :length], alone) < 1e-12
        assert head_error(final[row : row + 1], alone_final) < 1e-12
        for gradient in (out, d_q, d_k, d_v):
            assert not gradient[row, :, length:].any()


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_left_pads_with_zero_keys_and_values_change_nothing(name: str) -> None:
    attention = IMPLEMENTATIONS[name].lightning_attention
    q, k, v, _ = inputs(90)
    alone, alone_final = attention(q[:, :, 30:], k[:, :, 30:], v[:, :, 30:], SLOPES)
    k[:, :, :30] = v[:, :, :30] = 0
    padded, final = attention(q, k, v, SLOPES)
    assert head_error(padded[:, :, 30:], alone) < 1e-12
    assert head_error(final, alone_final) < 1e-12


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_two_parts_with_the_state_passed_on_equal_the_whole(name: str) -> None:
    attention = IMPLEMENTATIONS[name].lightning_attention
    q, k, v, state = inputs(100)
    whole, final = attention(q, k, v, SLOPES, initial_state=state)
    first, middle = attention(q[:, :, :37], k[:, :, :37], v[:, :, :37], SLOPES, initial_state=state)
    second, last = attention(q[:, :, 37:], k[:, :, 37:], v[:, :, 37:], SLOPES, initial_state=middle)
    assert head_error(torch.cat([first, second], dim=2), whole) < 1e-12
    assert head_error(last, final) < 1e-12


def test_decoding_equals_the_recurrence() -> None:
    q, k, v, state = inputs(40, torch.float32, batch=2, width=24)
    expected, final = reference.lightning_attention(q, k, v, SLOPES, initial_state=state)
    state = state.clone()
    steps = [lightning_step(q[:, :, t], k[:, :, t], v[:, :, t], SLOPES, state) for t in range(40)]
    assert head_error(torch.stack(steps, dim=2), expected) < 1e-5
    assert head_error(state, final) < 1e-5


def test_it_is_close_in_bf16_with_an_fp32_state() -> None:
    *qkv, state = inputs(257, torch.bfloat16)
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 3, 4)  # the slowest decay
    out, final = chunked.lightning_attention(*qkv, slopes, initial_state=state.float())
    expected, expected_final = reference.lightning_attention(
        *qkv, slopes, initial_state=state.float()
    )
    assert out.dtype == torch.bfloat16 and final.dtype == torch.float32
    assert head_error(out, expected) < 0.02
    assert head_error(final, expected_final) < 0.01


def test_a_gradient_of_only_one_of_the_results_is_enough() -> None:
    for only in (0, 1):
        gradients = []
        for module in IMPLEMENTATIONS.values():
            leaves = [x.requires_grad_() for x in inputs(50)]
            q, k, v, state = leaves
            result = module.lightning_attention(q, k, v, SLOPES, initial_state=state)[only]
            gradients.append(
                torch.autograd.grad(result.square().sum(), leaves, materialize_grads=True)
            )
        for a, e in zip(*gradients, strict=True):
            assert head_error(a, e) < 1e-12


def test_strong_decay_over_long_chunks_stays_finite() -> None:
    """exp(slope * chunk) would overflow fp32 here: no implementation may divide by the decay."""
    q, k, v, _ = inputs(300, torch.float32, dim=128, heads=1)
    expected, _ = reference.lightning_attention(q, k, v, torch.tensor([0.917]))
    actual, _ = chunked.lightning_attention(q, k, v, torch.tensor([0.917]))
    assert head_error(actual, expected) < 1e-5


def test_a_second_derivative_is_refused() -> None:
    q, k, v, _ = (x.requires_grad_() for x in inputs(5))
    output, _ = chunked.lightning_attention(q, k, v, SLOPES)
    (gradient,) = torch.autograd.grad(output.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
