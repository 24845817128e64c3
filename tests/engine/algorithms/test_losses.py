"""Policy losses per token: golden gradients, naive formulas, and what is counted as clipped."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.algorithms.corrections import sequence_mean
from engine.algorithms.losses import LOSSES
from engine.algorithms.statistics import off_policy_statistics
from engine.algorithms.tokens import Terms, Tokens
from engine.spec import RlStage

ratios = st.floats(0.01, 100)
signed = st.floats(-3, 3)
batches = st.lists(st.tuples(st.integers(0, 3), ratios, signed), min_size=1, max_size=14)


def terms(
    ratio: list[float], advantage: list[float], sequence: list[int] | None = None, **stage: object
) -> tuple[Terms, Tensor]:
    """The loss of tokens with these ratios, and its gradient with respect to the log-probs."""
    how = RlStage.model_validate(stage).resolved()
    behaviour = torch.full((len(ratio),), -1.0, dtype=torch.float64)
    logprobs = (behaviour + torch.tensor(ratio, dtype=torch.float64).log()).requires_grad_()
    number = torch.tensor(sequence or [0] * len(ratio))
    mean = sequence_mean((logprobs - behaviour).detach(), number)
    given_advantage = torch.tensor(advantage, dtype=torch.float64)
    found = LOSSES[how.loss](Tokens(logprobs, behaviour, given_advantage, mean, how.bounds))
    (gradient,) = torch.autograd.grad(found.losses.sum(), logprobs)
    return Terms(found.losses.detach(), found.clipped), gradient


@pytest.mark.parametrize(
    ("algorithm", "ratio", "advantage", "expected"),
    [
        ("cispo", 1.5, 1, -1.5),
        ("cispo", 8, 1, -5),
        ("cispo", 8, -1, 5),
        ("cispo", 0.1, 1, -0.1),
        ("cispo", 1, 0, 0),
        ("grpo", 1.5, 1, 0),
        ("grpo", 8, 1, 0),
        ("grpo", 8, -1, 8),
        ("grpo", 0.5, -1, 0),
        ("grpo", 0.5, 1, -0.5),
        ("rloo", 1.5, 1, -1),
        ("rloo", 8, -1, 1),
    ],
)
def test_it_gives_the_golden_gradients(
    algorithm: str, ratio: float, advantage: float, expected: float
) -> None:
    _, gradient = terms([ratio], [advantage], algorithm=algorithm)
    assert float(gradient) == pytest.approx(expected)


@given(ratios, signed, st.floats(0.5, 10))
def test_cispo_never_loses_a_token(ratio: float, advantage: float, weight_max: float) -> None:
    _, gradient = terms([ratio], [advantage], algorithm="cispo", weight_max=weight_max)
    assert float(gradient) == pytest.approx(-min(ratio, weight_max) * advantage)


@given(ratios, signed, st.floats(0, 1), st.floats(0, 3))
def test_ppo_is_the_lower_one_of_two_surrogates(
    ratio: float, advantage: float, low: float, high: float
) -> None:
    found, _ = terms([ratio], [advantage], algorithm="grpo", eps_low=low, eps_high=high)
    clipped = min(max(ratio, 1 - low), 1 + high)
    assert float(found.losses) == pytest.approx(-min(ratio * advantage, clipped * advantage))


@given(batches)
def test_gspo_is_the_clipped_surrogate_of_whole_trajectories(
    tokens: list[tuple[int, float, float]],
) -> None:
    sequence = [s for s, _, _ in tokens]
    advantage = {s: a for s, _, a in tokens}  # one for each trajectory
    per_token = [advantage[s] for s in sequence]
    stage = {"algorithm": "gspo", "eps_low": 0.3, "eps_high": 0.4}
    found, gradient = terms([r for _, r, _ in tokens], per_token, sequence, **stage)

    logprobs = torch.tensor([math.log(r) for _, r, _ in tokens], dtype=torch.float64)
    logprobs.requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for number, value in advantage.items():
        own = logprobs[torch.tensor(sequence) == number]
        ratio = own.mean().exp()
        surrogate = torch.minimum(ratio * value, ratio.clamp(0.7, 1.4) * value)
        total = total - len(own) * surrogate
    (expected,) = torch.autograd.grad(total, logprobs)
    assert float(found.losses.sum()) == pytest.approx(float(total.detach()), abs=1e-9)
    assert torch.allclose(gradient, expected, atol=1e-9)


@given(ratios, signed, st.floats(1.1, 6))
def test_a_dual_clip_bounds_what_a_bad_token_costs(
    ratio: float, advantage: float, most: float
) -> None:
    found, gradient = terms([ratio], [advantage], algorithm="grpo", dual_clip=most)
    plain, _ = terms([ratio], [advantage], algorithm="grpo")
    expected = float(plain.losses)
    if advantage < 0 and expected > -most * advantage:
        expected = -most * advantage
        assert found.clipped.tolist() == [1] and float(gradient) == 0
    assert float(found.losses) == pytest.approx(expected)


@pytest.mark.parametrize("algorithm", ["cispo", "grpo", "gspo", "rloo"])
def test_on_policy_every_loss_is_the_plain_policy_gradient(algorithm: str) -> None:
    found, gradient = terms([1.0, 1.0], [1.0, -0.5], [0, 1], algorithm=algorithm)
    assert gradient.tolist() == [-1.0, 0.5]
    assert not found.clipped.any()


def test_clipped_are_the_tokens_that_a_bound_changed_and_on_which_side() -> None:
    ratio, advantage = [1.5, 1.5, 0.5, 0.5], [1.0, -1.0, 1.0, -1.0]
    found, _ = terms(ratio, advantage, algorithm="grpo")
    assert found.clipped.tolist() == [1, 0, 0, -1]
    found, _ = terms([8.0, 1.0], [1.0, 1.0], algorithm="cispo")
    assert found.clipped.tolist() == [1, 0]


def test_statistics_of_equal_policies_show_no_difference() -> None:
    logprobs = torch.tensor([-0.1, -3.0, -1.0])
    figures = off_policy_statistics(logprobs, logprobs.clone(), 5.0)
    assert figures["weight_mean"] == figures["weight_max"] == figures["ess"] == 1.0
    assert figures["sampler_kl"] == 0.0


def test_statistics_see_the_weights() -> None:
    values = torch.tensor([8.0, 1.0, 1.0, 2.0], dtype=torch.float64)
    figures = off_policy_statistics(values.log(), torch.zeros(4, dtype=torch.float64), 5.0)
    assert figures["weight_mean"] == pytest.approx(3.0)
    assert figures["weight_max"] == pytest.approx(8.0)
    assert figures["ess"] == pytest.approx(9**2 / (4 * (25 + 1 + 1 + 4)))
    expected_kl = sum(r - 1 - math.log(r) for r in (8, 1, 1, 2)) / 4
    assert figures["sampler_kl"] == pytest.approx(expected_kl)


def test_statistics_take_a_step_of_any_number_of_tokens() -> None:
    logprobs = torch.zeros((1 << 24) + 1)
    logprobs[: 1 << 18] = math.log(2)  # 1.6%
    assert off_policy_statistics(logprobs, torch.zeros(1))["weight_p99"] == pytest.approx(2.0)
