"""Corrections of the gap between sampler and trainer, against loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.corrections import icepop, sequence_mean, truncated


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12))
def test_truncation_caps_the_ratio(values: list[float]) -> None:
    log_rho = torch.tensor(values, dtype=torch.float64).log()
    assert truncated(log_rho, 2.0).tolist() == pytest.approx([min(v, 2.0) for v in values])


def test_icepop_drops_what_lies_outside_the_band() -> None:
    log_rho = torch.tensor([0.4, 0.6, 1.0, 4.9, 5.1]).log()
    assert icepop(log_rho, 0.5, 5.0).tolist() == pytest.approx([0, 0.6, 1.0, 4.9, 0])


def test_no_correction_carries_a_gradient() -> None:
    log_rho = torch.zeros(3, requires_grad=True)
    assert not truncated(log_rho, 2.0).requires_grad
    assert not icepop(log_rho, 0.5, 5.0).requires_grad


def test_the_mean_of_a_trajectory_keeps_the_gradient() -> None:
    values = torch.tensor([1.0, 3.0, 5.0], requires_grad=True)
    means = sequence_mean(values, torch.tensor([7, 7, 2]))
    assert means.tolist() == [2.0, 2.0, 5.0]
    means[0].backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0.5, 0.0]
