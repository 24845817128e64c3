"""CISPO and SFT per token, and their mean over a step, against formulas and golden numbers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.aggregation import token_mean
from engine.algorithms.losses import cispo, importance_weight, sft
from engine.algorithms.statistics import off_policy_statistics


def gradient(ratio: float, advantage: float, weight_max: float = 5.0) -> float:
    """Of the loss of one token with respect to its log-probability."""
    logprob = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    behaviour = torch.tensor([-1.0 - math.log(ratio)], dtype=torch.float64)
    cispo(logprob, behaviour, torch.tensor([advantage]), weight_max).sum().backward()
    assert logprob.grad is not None
    return float(logprob.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, 1, -1.5), (8, 1, -5), (8, -1, 5), (0.1, 1, -0.1), (0.1, -1, 0.1), (1, 0, 0)],
)
def test_cispo_gives_the_golden_gradients(ratio: float, advantage: float, expected: float) -> None:
    assert gradient(ratio, advantage) == pytest.approx(expected)


@given(st.floats(0.01, 100), st.floats(-3, 3), st.floats(0.5, 10))
def test_cispo_never_loses_a_token(ratio: float, advantage: float, weight_max: float) -> None:
    expected = -min(ratio, weight_max) * advantage
    assert gradient(ratio, advantage, weight_max) == pytest.approx(expected)


def test_cispo_of_the_policy_that_sampled_is_the_plain_policy_gradient() -> None:
    logprobs = torch.tensor([-0.5, -2.0], requires_grad=True)
    advantages = torch.tensor([1.0, -0.5])
    cispo(logprobs, logprobs.detach(), advantages, 5.0).sum().backward()
    assert torch.equal(logprobs.grad, -advantages)


def test_the_weight_carries_no_gradient() -> None:
    logprobs = torch.tensor([-0.5], requires_grad=True)
    assert not importance_weight(logprobs, torch.zeros(1), 5.0).requires_grad


def test_sft_is_the_negative_log_likelihood() -> None:
    assert torch.equal(sft(torch.tensor([-0.5, -2.0])), torch.tensor([0.5, 2.0]))


def test_the_token_mean_gives_the_golden_number_however_it_is_cut() -> None:
    long, short = torch.ones(4), torch.tensor([2.0])
    assert float(token_mean(torch.cat([long, short]), 5)) == pytest.approx(1.2)
    assert float(token_mean(long, 5) + token_mean(short, 5)) == pytest.approx(1.2)
    parts = [token_mean(torch.full((100,), 0.5), 1000), token_mean(torch.full((900,), 0.3), 1000)]
    assert float(sum(parts)) == pytest.approx(0.32)


def test_a_step_without_tokens_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no mean"):
        token_mean(torch.ones(0), 0)


def test_statistics_of_equal_policies_show_no_difference() -> None:
    logprobs = torch.tensor([-0.1, -3.0, -1.0])
    figures = off_policy_statistics(logprobs, logprobs.clone(), 5.0)
    assert figures["weight_mean"] == figures["weight_max"] == figures["ess"] == 1.0
    assert figures["share_at_cap"] == figures["sampler_kl"] == 0.0


def test_statistics_see_weights_at_the_cap() -> None:
    ratios = torch.tensor([8.0, 1.0, 1.0, 2.0], dtype=torch.float64)
    figures = off_policy_statistics(ratios.log(), torch.zeros(4, dtype=torch.float64), 5.0)
    assert figures["weight_mean"] == pytest.approx(3.0)
    assert figures["weight_max"] == pytest.approx(8.0)
    assert figures["share_at_cap"] == 0.25
    assert figures["ess"] == pytest.approx(9**2 / (4 * (25 + 1 + 1 + 4)))
    expected_kl = sum(r - 1 - math.log(r) for r in (8, 1, 1, 2)) / 4
    assert figures["sampler_kl"] == pytest.approx(expected_kl)
