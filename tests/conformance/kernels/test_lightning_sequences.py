"""Sequences that published kernels mixed up: one test for each known bug of the operation.

Each docstring names where the bug was.
"""

import re

import pytest
import torch

from engine.kernels.lightning import lightning_attention, lightning_step, packing, reference
from tests.engine.kernels.lightning_cases import SLOPES, head_error, inputs, outputs_and_gradients


def test_a_batch_of_decodes_and_prefills_equals_each_alone() -> None:
    """vLLM #40859: decodes were sliced as if prefills came first."""
    lengths = [1, 70, 1, 40]
    q, k, v, state = inputs(70, batch=4)
    together, states = lightning_attention(
        q, k, v, SLOPES, initial_state=state, lengths=torch.tensor(lengths)
    )
    for row, length in enumerate(lengths):
        own = slice(row, row + 1), slice(None), slice(0, length)
        alone, after = lightning_attention(
            q[own], k[own], v[own], SLOPES, initial_state=state[own[:1]]
        )
        assert head_error(together[own], alone) < 1e-12
        assert head_error(states[own[:1]], after) < 1e-12


def test_rows_that_are_not_live_keep_their_state_bit_for_bit() -> None:
    """xLLM #1904, ROCm ATOM #1436: padded rows of a bucket overwrote a live request."""
    q, k, v, state = inputs(2, torch.float32, batch=4)
    lightning_step(q[:, :, 0], k[:, :, 0], v[:, :, 0], SLOPES, state)
    before = state.clone()
    live = torch.tensor([True, True, True, False])
    lightning_step(q[:, :, 1], k[:, :, 1], v[:, :, 1], SLOPES, state, live)
    assert torch.equal(state[3], before[3])
    assert not torch.isclose(state[:3], before[:3]).all(dim=-1).any()


def test_a_short_suffix_on_a_long_cached_prefix_equals_the_full_run() -> None:
    """SGLang #29368: short suffixes started from a zero state."""
    q, k, v, _ = inputs(403)
    full, final = lightning_attention(q, k, v, SLOPES)
    _, cached = lightning_attention(q[:, :, :400], k[:, :, :400], v[:, :, :400], SLOPES)
    suffix, last = lightning_attention(
        q[:, :, 400:], k[:, :, 400:], v[:, :, 400:], SLOPES, initial_state=cached
    )
    assert head_error(suffix, full[:, :, 400:]) < 1e-12
    assert head_error(last, final) < 1e-12


def test_a_padded_batch_of_one_equals_no_padding() -> None:
    """Transformers #46773: the mask was skipped at batch size 1."""
    q, k, v, state = inputs(50)
    for x in (q, k, v):
        x[:, :, 30:] = torch.nan
    padded, after = lightning_attention(
        q, k, v, SLOPES, initial_state=state, lengths=torch.tensor([30])
    )
    alone, expected = lightning_attention(
        q[:, :, :30], k[:, :, :30], v[:, :, :30], SLOPES, initial_state=state
    )
    assert head_error(padded[:, :, :30], alone) < 1e-12
    assert head_error(after, expected) < 1e-12


def test_right_padding_does_not_decay_the_state() -> None:
    """Transformers' MiniMax: 17 pads left a state that was off by 17%."""
    q, k, v, _ = inputs(117)
    k[:, :, 100:] = v[:, :, 100:] = 0
    _, padded = lightning_attention(q, k, v, SLOPES, lengths=torch.tensor([100]))
    _, expected = lightning_attention(q[:, :, :100], k[:, :, :100], v[:, :, :100], SLOPES)
    assert head_error(padded, expected) < 1e-12


def test_packed_sequences_equal_separate_ones_with_their_gradients() -> None:
    """Transformers' MiniMax: the state of one packed sample leaked into the next."""
    lengths, borders = [20, 1, 33], [0, 20, 21, 54]
    tensors = inputs(54, states=3)
    packed = outputs_and_gradients(
        lightning_attention, tensors, SLOPES, cu_seqlens=torch.tensor(borders)
    )
    leaves = [x.clone().requires_grad_() for x in tensors]
    q, k, v, state = leaves
    outputs, states = [], []
    for row, (start, length) in enumerate(zip(borders, lengths, strict=False)):
        own = slice(start, start + length)
        output, after = reference.lightning_attention(
            q[:, :, own], k[:, :, own], v[:, :, own], SLOPES, initial_state=state[row : row + 1]
        )
        outputs.append(output)
        states.append(after)
    output, final = torch.cat(outputs, dim=2), torch.cat(states)
    generator = torch.Generator().manual_seed(99)  # of outputs_and_gradients
    d_output = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    d_final = torch.randn(final.shape, generator=generator, dtype=torch.float64)
    gradients = torch.autograd.grad((output, final), leaves, (d_output, d_final))
    for a, e in zip(packed, [output, final, *gradients], strict=True):
        assert head_error(a, e) < 1e-12


def test_an_empty_sequence_in_a_pack_is_refused() -> None:
    """fla #103: equal entries of cu_seqlens read where they may not, and gave NaN."""
    q, k, v, _ = inputs(9)
    with pytest.raises(ValueError, match="sequence 1 of 3 runs from 5 to 5"):
        lightning_attention(q, k, v, SLOPES, cu_seqlens=torch.tensor([0, 5, 5, 9]))


def test_borders_and_a_mask_cannot_disagree() -> None:
    """fla #1086, #1088: a mask overrode explicit borders."""
    q, k, v, _ = inputs(9)
    with pytest.raises(ValueError, match="lengths belong to the dense form"):
        lightning_attention(
            q, k, v, SLOPES, cu_seqlens=torch.tensor([0, 5, 9]), lengths=torch.tensor([9])
        )


def test_a_state_can_be_taken_at_any_branch_point() -> None:
    """vLLM #40696, #51250: prefix states existed on a grid of 528 to 1,056 tokens only."""
    q, k, v, _ = inputs(60)
    form = {"cu_seqlens": torch.tensor([0, 37, 60]), "parents": torch.tensor([-1, 0])}
    whole, states = lightning_attention(q, k, v, SLOPES, **form)
    _, expected = reference.lightning_attention(q[:, :, :37], k[:, :, :37], v[:, :, :37], SLOPES)
    assert head_error(states[:1], expected) < 1e-12
    branch, _ = lightning_attention(
        q[:, :, 37:], k[:, :, 37:], v[:, :, 37:], SLOPES, initial_state=states[:1]
    )
    assert head_error(branch, whole[:, :, 37:]) < 1e-12


def test_two_ranks_that_exchange_a_state_equal_one() -> None:
    """MaxText #4932, Megatron #6808: context parallelism gathered the sequence, although the scan
    is affine in the state that enters: rank 2 starts from zero and adds what rank 1 hands over."""
    q, k, v, state = inputs(90)
    whole, final = lightning_attention(q, k, v, SLOPES, initial_state=state)
    first, second = ([x[:, :, part] for x in (q, k, v)] for part in (slice(50), slice(50, 90)))
    _, handed = lightning_attention(*first, SLOPES, initial_state=state)
    own, after = lightning_attention(*second, SLOPES)
    rate = SLOPES.double()[:, None, None]
    steps = torch.arange(1, 41)[:, None]
    assert head_error(own + (second[0] * torch.exp(-rate * steps)) @ handed, whole[:, :, 50:]) < (
        1e-12
    )
    assert head_error(after + torch.exp(-40 * rate) * handed, final) < 1e-12


def test_a_node_before_its_parent_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("parents[1] is 2")):
        packing([0, 3, 5, 9], [-1, 2, 0])
