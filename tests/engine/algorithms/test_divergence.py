"""KL estimates: golden numbers, and their expected gradients on two outcomes."""

import pytest
import torch

from engine.algorithms.divergence import kl_estimate
from engine.spec.algorithms import KlKind

POLICY = torch.tensor([0.7, 0.3], dtype=torch.float64)
REFERENCE = torch.tensor([0.5, 0.5], dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "expected"), [("k1", 0.5), ("k2", 0.125), ("k3", 0.106531), ("abs", 0.5)]
)
def test_it_gives_the_golden_numbers(kind: KlKind, expected: float) -> None:
    found = kl_estimate(torch.tensor([-1.0]), torch.tensor([-1.5]), kind)
    assert float(found) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize("kind", ["k1", "k3", "k3_unbiased"])
def test_its_mean_is_the_divergence(kind: KlKind) -> None:
    values = kl_estimate(POLICY.log(), REFERENCE.log(), kind)
    assert float((POLICY * values).sum()) == pytest.approx(0.082283, abs=5e-7)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("k1", 0.0), ("k2", 0.177933), ("k3", 0.200000), ("k3_unbiased", 0.177933)],
)
def test_its_expected_gradient_is_the_golden_one(kind: KlKind, expected: float) -> None:
    logit = torch.logit(POLICY[:1]).requires_grad_()
    logprobs = torch.nn.functional.logsigmoid(torch.cat([logit, -logit]))
    values = kl_estimate(logprobs, REFERENCE.log(), kind)
    (POLICY * values).sum().backward()  # outcomes are drawn from the policy, not differentiated
    assert logit.grad is not None
    assert float(logit.grad) == pytest.approx(expected, abs=5e-7)


def test_the_unbiased_one_is_exact_for_tokens_of_an_older_policy() -> None:
    behaviour = torch.tensor([0.4, 0.6], dtype=torch.float64)
    values = kl_estimate(POLICY.log(), REFERENCE.log(), "k3_unbiased", behaviour.log())
    assert float((behaviour * values).sum()) == pytest.approx(0.082283, abs=5e-7)
