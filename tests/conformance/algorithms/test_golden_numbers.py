"""Published and independently recomputed numbers, exact to the digits that are given."""

import math

import pytest
import torch

from engine.algorithms.advantages import advantages
from engine.algorithms.aggregation import token_weights
from engine.algorithms.divergence import kl_estimate
from engine.algorithms.losses import LOSSES
from engine.algorithms.preference import Side, pair_loss
from engine.algorithms.returns import discounted_returns, generalised_advantages
from engine.algorithms.tokens import Tokens
from engine.evaluation.intervals import wilson
from engine.evaluation.pass_k import pass_at_k, pass_hat_k
from engine.spec import RlStage
from engine.spec.algorithms import Advantage, Aggregation, KlKind
from engine.training.credit import credit
from engine.training.rl_batch import gather
from tests.conformance.algorithms.exact import trajectory_of

ADVANTAGES = [0.38545, 0.42424, 0.49200, 0.60000]
RETURNS = [0.48545, 0.62424, 0.79200, 1.0]


def digits(value: float, places: int = 5) -> object:
    return pytest.approx(value, abs=0.5 * 10**-places)


def test_gae_of_four_tokens() -> None:
    one = torch.zeros(4, dtype=torch.long)
    rewards, values = torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([0.1, 0.2, 0.3, 0.4])
    found = generalised_advantages(rewards, values, one, 0.9, 0.8)
    assert found.advantages.tolist() == [digits(value) for value in ADVANTAGES]
    assert found.returns.tolist() == [digits(value) for value in RETURNS]


def test_gae_looks_at_no_value_of_an_observation() -> None:
    """Two tokens of the environment with a value of 9 in the middle change no return."""
    mask = [False, True, True, False, False, True, True]
    group = [trajectory_of(mask, 1.0)]
    values = torch.tensor([[9.0, 0.1, 0.2, 9.0, 9.0, 0.3, 0.4]])
    stage = RlStage(algorithm="ppo", gamma=0.9, gae_lambda=0.8)
    found = gather([group])
    assert found is not None
    given = credit(found, [group], stage, values=values)
    assert given.returns is not None
    assert given.returns[0, torch.tensor(mask)].tolist() == [digits(value) for value in RETURNS]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("group_normalised", 0.86602),
        ("group_centred", 0.5),
        ("leave_one_out", 0.66667),
        ("group_batch_whitened", 0.95743),
    ],
)
def test_advantages_of_two_right_and_two_wrong(kind: Advantage, size: float) -> None:
    found = advantages(kind, [[1.0, 0.0, 0.0, 1.0]], [[3, 3, 3, 3]])
    assert found == [[digits(size), digits(-size), digits(-size), digits(size)]]


def test_reinforce_plus_plus_returns_pass_over_observations() -> None:
    """Rewards (0, 0, 1), the middle token the environment's, gamma 0.5."""
    found = discounted_returns(torch.tensor([0.0, 1.0]), torch.zeros(2, dtype=torch.long), 0.5)
    assert found.tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("token-mean", 1.2),
        ("seq-mean-token-mean", 1.5),
        ("seq-mean-token-sum", 3.0),
        ("seq-mean-token-sum-norm", 0.75),
        ("token-sum", 6.0),
    ],
)
def test_loss_of_rows_of_four_and_of_one(kind: Aggregation, loss: float) -> None:
    first, second = token_weights(kind, [4, 1], longest=4)
    assert first * (1 + 1 + 1 + 1) + second * 2 == pytest.approx(loss)


@pytest.mark.parametrize(("kind", "value"), [("k1", 0.5), ("k2", 0.125), ("k3", 0.106531)])
def test_kl_estimates_of_one_token(kind: KlKind, value: float) -> None:
    assert float(kl_estimate(torch.tensor(-1.0), torch.tensor(-1.5), kind)) == digits(value, 6)


@pytest.mark.parametrize(
    ("kind", "gradient"),
    [("k1", 0.0), ("k2", 0.177933), ("k3", 0.2), ("k3_unbiased", 0.177933)],
)
def test_expected_gradient_of_kl_estimates_on_two_outcomes(kind: KlKind, gradient: float) -> None:
    """p = (.7, .3), reference (.5, .5): the reverse KL is .082283, its gradient with respect to
    the logit .177933."""
    logit = torch.tensor(math.log(0.7 / 0.3), requires_grad=True)
    logprobs = torch.stack([torch.nn.functional.logsigmoid(one) for one in (logit, -logit)])
    p = logprobs.detach().exp()
    values = kl_estimate(logprobs, torch.full((2,), math.log(0.5)), kind)
    (found,) = torch.autograd.grad((p * values).sum(), logit)
    assert float(found) == digits(gradient, 6)
    if kind != "k2":
        assert float((p * values).sum().detach()) == digits(0.082283, 6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "ppo", "cispo"),
    [(1.5, 1.0, 0.0, -1.5), (8.0, 1.0, 0.0, -5.0), (8.0, -1.0, 8.0, 5.0)],
)
def test_gradients_of_ppo_and_cispo(
    ratio: float, advantage: float, ppo: float, cispo: float
) -> None:
    for name, expected in (("grpo", ppo), ("cispo", cispo)):
        how = RlStage.model_validate({"algorithm": name}).resolved()
        logprobs = torch.tensor([math.log(ratio) - 9], requires_grad=True)
        anchor = torch.tensor([-9.0])
        tokens = Tokens(
            logprobs, anchor, torch.tensor([advantage]), logprobs.detach() - anchor, how.bounds
        )
        (found,) = torch.autograd.grad(LOSSES[how.loss](tokens).losses.sum(), logprobs)
        assert float(found) == pytest.approx(expected)


def test_the_loss_of_dpo_starts_at_the_logarithm_of_two() -> None:
    side = Side(torch.tensor([-3.0]), torch.tensor([-3.0]), torch.tensor([4]))
    assert float(pair_loss("sigmoid", side, side, beta=0.1)) == digits(0.693147, 6)


@pytest.mark.parametrize(
    ("successes", "trials", "lower", "upper"),
    [
        (360, 3000, 0.1089, 0.1321),
        (120, 3000, 0.0336, 0.0476),
        (0, 50, 0.0, 0.0713),
        (8, 10, 0.4902, 0.9433),
    ],
)
def test_wilson_intervals(successes: int, trials: int, lower: float, upper: float) -> None:
    found = wilson(successes, trials)
    assert (found.lower, found.upper) == (digits(lower, 4), digits(upper, 4))


def test_pass_at_k_and_pass_hat_k() -> None:
    assert pass_at_k(10, 3, 5) == digits(0.916667, 6)
    assert pass_hat_k(4, 3, 2) == 0.5
    with pytest.raises(ValueError, match="5"):
        pass_at_k(4, 3, 5)
