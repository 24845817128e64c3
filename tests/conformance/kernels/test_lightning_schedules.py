"""Decay schedules that published models got wrong: one test for each known bug."""

import pytest
import torch

from engine.kernels.lightning import SlopeSchedule, head_slopes, lightning_attention


@pytest.mark.parametrize(
    ("heads", "lower", "step"),
    [(12, 8, 1.0), (24, 16, 0.5), (40, 32, 0.25)],  # slopes 2^(-step), 2^(-2 step), ...
)
def test_head_counts_between_powers_of_two_follow_the_published_recipe(
    heads: int, lower: int, step: float
) -> None:
    """Transformers takes a geometric series for every head count; M1 and vLLM do not."""
    expected = [2 ** (-step * (h + 1)) for h in range(lower)]
    expected += [2 ** (-step / 2 * (2 * h + 1)) for h in range(heads - lower)]
    assert head_slopes(SlopeSchedule.ALIBI, heads, 0, 1).tolist() == pytest.approx(expected)


def test_slopes_in_bf16_are_refused() -> None:
    """Transformers casts its decay tables with the model: a tenth of bf16 decays round to 1."""
    q = torch.ones(1, 4, 3, 8)
    slopes = head_slopes(SlopeSchedule.MINIMAX, 4, 0, 4)
    with pytest.raises(TypeError, match="slopes are torch.bfloat16"):
        lightning_attention(q, q, q, slopes.bfloat16())
