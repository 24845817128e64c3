"""What lightning attention refuses, with the shapes in the message."""

import re

import pytest
import torch

from engine.kernels.lightning import lightning_attention, lightning_step, packing
from tests.engine.kernels.lightning_cases import IMPLEMENTATIONS, SLOPES, inputs


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("borders", "message"),
    [
        ([0, 5, 5, 9], "sequence 1 of 3 runs from 5 to 5: leave out empty sequences"),
        ([0, 6, 4, 9], "sequence 1 of 3 runs from 6 to 4"),
        ([1, 5, 9], "has shape [3] and begins with [1]"),
        ([0], "has shape [1]"),
        ([0, 5, 8], "cu_seqlens end at 8, but q [1, 4, 9, 16] has 9 tokens"),
        ([[0, 9]], "cu_seqlens has shape [1, 2]"),
        ([0.0, 9.0], "type torch.float32"),
    ],
)
def test_it_refuses_wrong_borders(name: str, borders: list, message: str) -> None:
    q, k, v, _ = inputs(9)
    with pytest.raises(ValueError, match=re.escape(message)):
        IMPLEMENTATIONS[name].lightning_attention(q, k, v, SLOPES, cu_seqlens=torch.tensor(borders))


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([0, -1], "parents[0] is 0"),
        ([1, 0], "parents[0] is 1: the parent of a node must come before it"),
        ([-1, -2], "parents[1] is -2"),
        ([-1], "parents has 1 entries, but cu_seqlens names 2 nodes"),
    ],
)
def test_it_refuses_parents_that_make_no_tree(parents: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        packing(torch.tensor([0, 4, 9]), torch.tensor(parents))


def test_it_refuses_parents_without_borders() -> None:
    q, k, v, _ = inputs(9)
    with pytest.raises(ValueError, match=re.escape("parents (shape [1]) need cu_seqlens")):
        lightning_attention(q, k, v, SLOPES, parents=torch.tensor([-1]))


def test_it_refuses_two_rows_in_the_packed_form() -> None:
    q, k, v, _ = inputs(9, batch=2)
    with pytest.raises(ValueError, match=re.escape("q [2, 4, 9, 16] has 2 rows")):
        lightning_attention(q, k, v, SLOPES, cu_seqlens=torch.tensor([0, 9]))


def test_it_refuses_two_ways_to_say_how_long_sequences_are() -> None:
    q, k, v, _ = inputs(9)
    borders = torch.tensor([0, 9])
    with pytest.raises(ValueError, match="lengths belong to the dense form"):
        lightning_attention(q, k, v, SLOPES, cu_seqlens=borders, lengths=torch.tensor([9]))
    with pytest.raises(ValueError, match="give one or the other"):
        lightning_attention(q, k, v, SLOPES, cu_seqlens=borders, packing=packing(borders))


def test_it_refuses_a_packing_on_another_device() -> None:
    q, k, v, _ = inputs(9)
    elsewhere = packing(torch.tensor([0, 9])).to(torch.device("meta"))
    with pytest.raises(ValueError, match="the packing is on meta and q on cpu"):
        lightning_attention(q, k, v, SLOPES, packing=elsewhere)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_it_refuses_a_state_in_low_precision(name: str, low: torch.dtype) -> None:
    q, k, v, state = inputs(8, torch.bfloat16)
    with pytest.raises(TypeError, match=f"initial_state is {low}"):
        IMPLEMENTATIONS[name].lightning_attention(q, k, v, SLOPES, initial_state=state.to(low))
    with pytest.raises(TypeError, match=re.escape(f"state [1, 4, 16, 16] is {low}")):
        lightning_step(q[:, :, 0], k[:, :, 0], v[:, :, 0], SLOPES, state.to(low))


def test_it_refuses_shapes_that_do_not_fit_together() -> None:
    q, k, v, state = inputs(9)
    refused = [
        ({"k": k[:, :, :8]}, "k [1, 4, 8, 16]"),
        ({"v": v[:, :3]}, "v [1, 3, 9, 16]"),
        ({"q": q[0]}, "q [4, 9, 16]"),
        ({"slopes": SLOPES[:3]}, "slopes has shape [3]: it must be [4]"),
        ({"initial_state": state[:, :, :8]}, "initial_state has shape [1, 4, 8, 16]"),
        ({"lengths": torch.tensor([9, 9])}, "lengths has shape [2]: it must be [1]"),
    ]
    for change, message in refused:
        arguments = {"q": q, "k": k, "v": v, "slopes": SLOPES, **change}
        with pytest.raises(ValueError, match=re.escape(message)):
            lightning_attention(**arguments)


def test_it_refuses_no_tokens() -> None:
    q, k, v, _ = inputs(0)
    with pytest.raises(ValueError, match=re.escape("q [1, 4, 0, 16]")):
        lightning_attention(q, k, v, SLOPES)


def test_it_refuses_mixed_types_and_slopes_in_bf16() -> None:
    q, k, v, _ = inputs(9)
    with pytest.raises(TypeError, match="must all be bf16, fp32 or fp64"):
        lightning_attention(q, k.float(), v, SLOPES)
    with pytest.raises(TypeError, match="slopes are torch.bfloat16"):
        lightning_attention(q, k, v, SLOPES.bfloat16())


def test_it_refuses_an_implementation_that_does_not_exist() -> None:
    q, k, v, _ = inputs(9)
    with pytest.raises(ValueError, match="implementation is 'fast'"):
        lightning_attention(q, k, v, SLOPES, implementation="fast")
