"""Preference losses against their formulas written naively, and what they refuse."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.preference import (
    Side,
    dpo,
    ipo,
    likelihood,
    pair_figures,
    pair_loss,
    sigmoid_norm,
)

NATS = st.floats(-60, 0, allow_nan=False)
PAIR = st.tuples(NATS, NATS, NATS, NATS, st.integers(1, 40), st.integers(1, 40))
PAIRS = st.lists(PAIR, min_size=1, max_size=6)


def sides(pairs) -> tuple[Side, Side]:
    columns = [torch.tensor(c, dtype=torch.float64) for c in zip(*pairs, strict=True)]
    chosen, chosen_ref, rejected, rejected_ref, chosen_tokens, rejected_tokens = columns
    return Side(chosen, chosen_ref, chosen_tokens), Side(rejected, rejected_ref, rejected_tokens)


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


@given(PAIRS, st.floats(0.01, 1), st.floats(0, 0.49))
def test_every_loss_is_its_formula(pairs, beta, smoothing):
    chosen, rejected = sides(pairs)
    for place, (w, w_ref, l, l_ref, w_n, l_n) in enumerate(pairs):  # noqa: E741
        h = beta * ((w - w_ref) - (l - l_ref))
        expected = -(1 - smoothing) * log_sigmoid(h) - smoothing * log_sigmoid(-h)
        assert float(dpo(chosen, rejected, beta, smoothing)[place]) == pytest.approx(expected)
        means = (w - w_ref) / w_n - (l - l_ref) / l_n
        assert float(ipo(chosen, rejected, beta)[place]) == pytest.approx(
            (means - 1 / (2 * beta)) ** 2
        )
        assert float(sigmoid_norm(chosen, rejected, beta)[place]) == pytest.approx(
            -log_sigmoid(beta * means), abs=1e-12
        )
    nll = -sum(pair[0] for pair in pairs) / sum(pair[4] for pair in pairs)
    assert float(likelihood(chosen)) == pytest.approx(nll)
    whole = pair_loss("sigmoid", chosen, rejected, beta=beta, rpo_weight=0.3)
    assert float(whole) == pytest.approx(float(dpo(chosen, rejected, beta).mean()) + 0.3 * nll)
    assert float(pair_loss("sft", chosen, rejected, beta=beta)) == pytest.approx(nll)


@given(PAIRS, st.floats(0.01, 1))
def test_at_the_start_a_pair_costs_ln_2_whatever_its_length(pairs, beta):
    chosen, rejected = sides([(w, w, l, l, n, m) for w, _, l, _, n, m in pairs])  # noqa: E741
    for kind in ("sigmoid", "sigmoid_norm"):
        assert float(pair_loss(kind, chosen, rejected, beta=beta)) == pytest.approx(0.693147, 1e-6)
    assert float(pair_loss("ipo", chosen, rejected, beta=beta)) == pytest.approx(
        1 / (2 * beta) ** 2
    )


def test_the_gradient_of_dpo_is_the_papers():
    """Section 4: beta s(-beta h) (grad log pi(chosen) - grad log pi(rejected))."""
    chosen, rejected = sides([(-3.0, -4.0, -2.5, -2.0, 3, 4), (-9.0, -8.0, -1.0, -2.0, 5, 1)])
    chosen.logprobs.requires_grad_()
    rejected.logprobs.requires_grad_()
    pair_loss("sigmoid", chosen, rejected, beta=0.5).backward()
    h = 0.5 * torch.tensor([1.0 - -0.5, -1.0 - 1.0], dtype=torch.float64)
    expected = -0.5 * torch.sigmoid(-h) / 2
    assert torch.allclose(chosen.logprobs.grad, expected)
    assert torch.allclose(rejected.logprobs.grad, -expected)


def test_figures_are_means_over_pairs_and_the_change_of_chosen_is_a_token():
    chosen, rejected = sides([(-3.0, -4.0, -2.5, -2.0, 3, 4), (-9.0, -8.5, -1.0, -2.0, 2, 1)])
    figures = pair_figures(chosen, rejected, 0.1)
    assert figures == pytest.approx(
        {
            "rewards_chosen": 0.1 * (1 - 0.5) / 2,
            "rewards_rejected": 0.1 * (-0.5 + 1) / 2,
            "margin": 0.0,
            "accuracy": 0.5,
            "logps_chosen": -6.0,
            "logps_rejected": -1.75,
            "chosen_change": 0.5 / 5,
        }
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_log_probabilities_that_are_not_finite_are_refused_by_name(bad):
    one = torch.tensor([-1.0, bad])
    fine, tokens = torch.tensor([-1.0, -2.0]), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="logprobs of pair 1"):
        Side(one, fine, tokens)
    with pytest.raises(ValueError, match="reference of pair 1"):
        Side(fine, one, tokens)


def test_masked_sides_and_sides_of_other_sizes_are_refused():
    fine = torch.tensor([-1.0, -2.0])
    with pytest.raises(ValueError, match="everything is masked"):
        Side(fine, fine, torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=r"\[2\], \[2\], \[1\]"):
        Side(fine, fine, torch.tensor([1]))
