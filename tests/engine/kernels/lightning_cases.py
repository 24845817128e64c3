"""Inputs and measures that the tests of lightning attention share."""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.kernels.lightning import SlopeSchedule, chunked, head_slopes, reference

IMPLEMENTATIONS = {"reference": reference, "chunked": chunked}
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12}
SLOPES = head_slopes(SlopeSchedule.MINIMAX, 4, 0, 4)


def inputs(
    tokens: int,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    *,
    batch: int = 1,
    heads: int = 4,
    dim: int = 16,
    width: int | None = None,
    states: int | None = None,
) -> list[Tensor]:
    """Normal q, k, v and initial states, one a row or as many as `states`."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    width = dim if width is None else width
    q, k = (draw(batch, heads, tokens, dim) for _ in range(2))
    v = draw(batch, heads, tokens, width)
    return [q, k, v, draw(states or batch, heads, dim, width)]


def head_error(actual: Tensor, expected: Tensor) -> float:
    """Largest relative error (2-norm) over the heads; both [rows, heads, ...]."""
    assert actual.shape == expected.shape
    actual = actual.detach().double().transpose(0, 1).flatten(1)
    expected = expected.detach().double().transpose(0, 1).flatten(1)
    norms = expected.norm(dim=1).clamp(min=1e-300)
    return float(((actual - expected).norm(dim=1) / norms).max())


def outputs_and_gradients(
    attention: Callable[..., tuple[Tensor, Tensor]], tensors: list[Tensor], slopes: Tensor, **form
) -> list[Tensor]:
    """Output, final states, and the gradients of q, k, v, initial states from random weights."""
    leaves = [x.clone().requires_grad_() for x in tensors]
    q, k, v, state = leaves
    output, final = attention(q, k, v, slopes, initial_state=state, **form)
    generator = torch.Generator().manual_seed(99)
    weight = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    weight_state = torch.randn(final.shape, generator=generator, dtype=torch.float64)
    ((output.double() * weight).sum() + (final.double() * weight_state).sum()).backward()
    return [output.detach(), final.detach(), *(leaf.grad for leaf in leaves)]


def double(tensors: list[Tensor]) -> list[Tensor]:
    return [x.double() for x in tensors]
