"""One body for every implementation of lightning attention, against the fp64 token recurrence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.kernels.lightning import SlopeSchedule, chunked, head_slopes, lightning_step, reference

IMPLEMENTATIONS = {"reference": reference, "chunked": chunked}
LENGTHS = [1, 63, 64, 65, 255, 257, 600, 913]
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12}


def inputs(
    tokens: int, dtype: torch.dtype, seed: int = 0, batch: int = 2, heads: int = 4, dim: int = 16
):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    q, k, v = (draw(batch, heads, tokens, dim) for _ in range(3))
    return q, k, v, draw(batch, heads, dim, dim)


def head_error(actual: Tensor, expected: Tensor) -> float:
    """Largest relative error (2-norm) over the heads; both [batch, heads, ...]."""
    actual = actual.double().transpose(0, 1).flatten(1)
    expected = expected.double().transpose(0, 1).flatten(1)
    norms = expected.norm(dim=1).clamp(min=1e-300)
    return float(((actual - expected).norm(dim=1) / norms).max())


def outputs_and_gradients(module, q, k, v, state, slopes, lengths=None) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in (q, k, v, state)]
    output, final = module.lightning_attention(
        leaves[0], leaves[1], leaves[2], slopes, initial_state=leaves[3], lengths=lengths
    )
    generator = torch.Generator().manual_seed(99)
    weight = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    weight_state = torch.randn(final.shape, generator=generator, dtype=torch.float64)
    ((output.double() * weight).sum() + (final.double() * weight_state).sum()).backward()
    return [output.detach(), final.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("tokens", LENGTHS)
def test_it_equals_the_recurrence(name: str, dtype: torch.dtype, tokens: int) -> None:
    q, k, v, state = inputs(tokens, dtype)
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 0, 4)
    actual = outputs_and_gradients(IMPLEMENTATIONS[name], q, k, v, state, slopes)
    expected = outputs_and_gradients(reference, *(x.double() for x in (q, k, v, state)), slopes)
    for a, e in zip(actual, expected, strict=True):
        assert head_error(a, e) < BOUNDS[dtype]


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_shifted_decay_is_noticed(name: str) -> None:
    """The bound would catch an implementation that decays once too often from the state."""
    q, k, v, state = inputs(65, torch.float32)
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 0, 4)
    shifted = state * torch.exp(-slopes)[:, None, None]
    actual = outputs_and_gradients(IMPLEMENTATIONS[name], q, k, v, shifted, slopes)
    expected = outputs_and_gradients(reference, q, k, v, state, slopes)
    assert head_error(actual[0], expected[0]) > 1e-3


def test_a_shifted_query_decay_inside_the_chunks_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    true_decays = chunked._decays

    def one_exponent_short(slopes: Tensor, *rest) -> tuple[Tensor, ...]:
        within, query, key, state = true_decays(slopes, *rest)
        return within, query * torch.exp(slopes)[:, None, None, None], key, state

    monkeypatch.setattr(chunked, "_decays", one_exponent_short)
    q, k, v, state = inputs(65, torch.float32)
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 0, 4)
    actual = outputs_and_gradients(chunked, q, k, v, state, slopes)
    expected = outputs_and_gradients(reference, q, k, v, state, slopes)
    assert head_error(actual[0], expected[0]) > 1e-3


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    extra=st.integers(0, 40),
    layer=st.integers(0, 7),
    seed=st.integers(0, 2**16),
)
def test_padding_changes_nothing(
    name: str, lengths: list[int], extra: int, layer: int, seed: int
) -> None:
    """Rows of different lengths, their tails poisoned with NaN, equal each row alone."""
    tokens = max(lengths) + extra
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, layer, 8)
    q, k, v, state = inputs(tokens, torch.float64, seed, batch=len(lengths), dim=8)
    for row, length in enumerate(lengths):
        for x in (q, k, v):
            x[row, :, length:] = torch.nan
    together = IMPLEMENTATIONS[name]
    out, final, d_q, d_k, d_v, d_state = outputs_and_gradients(
        together, q, k, v, state, slopes, torch.tensor(lengths)
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
def test_two_parts_with_the_state_passed_on_equal_the_whole(name: str) -> None:
    module = IMPLEMENTATIONS[name]
    q, k, v, state = inputs(100, torch.float64)
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 1, 4)
    whole, final = module.lightning_attention(q, k, v, slopes, initial_state=state)
    first, middle = module.lightning_attention(
        q[:, :, :37], k[:, :, :37], v[:, :, :37], slopes, initial_state=state
    )
    second, last = module.lightning_attention(
        q[:, :, 37:], k[:, :, 37:], v[:, :, 37:], slopes, initial_state=middle
    )
    assert head_error(torch.cat([first, second], dim=2), whole) < 1e-12
    assert head_error(last, final) < 1e-12


def test_decoding_equals_the_recurrence() -> None:
    q, k, v, state = inputs(40, torch.float32)
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 0, 4)
    expected, final = reference.lightning_attention(q, k, v, slopes, initial_state=state)
    state = state.clone()
    steps = [lightning_step(q[:, :, t], k[:, :, t], v[:, :, t], slopes, state) for t in range(40)]
    assert head_error(torch.stack(steps, dim=2), expected) < 1e-5
    assert head_error(state, final) < 1e-5


def test_it_is_close_in_bf16_with_an_fp32_state() -> None:
    q, k, v, state = inputs(257, torch.bfloat16)
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 3, 4)  # the slowest decay
    out, final = chunked.lightning_attention(q, k, v, slopes, initial_state=state.float())
    expected, expected_final = reference.lightning_attention(q, k, v, slopes, initial_state=state)
    assert out.dtype == torch.bfloat16 and final.dtype == torch.float32
    assert head_error(out, expected) < 0.02
    assert head_error(final, expected_final) < 0.01


def test_it_refuses_a_state_in_low_precision() -> None:
    q, k, v, state = inputs(8, torch.bfloat16)
    with pytest.raises(TypeError, match="initial_state is torch.bfloat16"):
        chunked.lightning_attention(q, k, v, torch.ones(4), initial_state=state)


def test_strong_decay_over_long_chunks_stays_finite() -> None:
    """exp(slope * chunk) would overflow fp32 here: no implementation may divide by the decay."""
    q, k, v, _ = inputs(300, torch.float32, dim=128, heads=1)
    expected, _ = reference.lightning_attention(q, k, v, torch.tensor([0.917]))
    actual, _ = chunked.lightning_attention(q, k, v, torch.tensor([0.917]))
    assert head_error(actual, expected) < 1e-5


def test_the_schedules_match_their_published_tables() -> None:
    minimax = head_slopes(SlopeSchedule.MINIMAX, 64, 0, 80)
    assert minimax[0] == pytest.approx(0.9170 * (1 + 1e-5), abs=1e-4)
    assert minimax[-1] == pytest.approx(2**-8 * (1 + 1e-5))
    deepest = head_slopes(SlopeSchedule.MINIMAX, 64, 79, 80)
    assert deepest[-1] == pytest.approx(2**-8 * 1e-5, rel=1e-3)
    twelve = head_slopes(SlopeSchedule.ALIBI, 12, 3, 8)
    assert twelve[:4].tolist() == pytest.approx([0.5, 0.25, 0.125, 0.0625])
    assert twelve[8:10].tolist() == pytest.approx([0.7071, 0.3536], abs=1e-4)
    bailing = head_slopes(SlopeSchedule.BAILING, 4, 2, 5)
    assert bailing.tolist() == pytest.approx([2 ** (-2 * h) * (0.75 + 1e-5) for h in range(1, 5)])
    transnormer = head_slopes(SlopeSchedule.TRANSNORMER, 4, 1, 2)
    assert transnormer.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert minimax.dtype == torch.float32
