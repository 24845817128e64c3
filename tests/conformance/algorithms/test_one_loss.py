"""One loss without a trainer: the function of docs/algorithms.md against naive formulas."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.algorithms.advantages import advantages
from engine.algorithms.aggregation import token_weights
from engine.algorithms.corrections import correction_weights
from engine.algorithms.divergence import kl_estimate
from engine.algorithms.losses import LOSSES
from engine.algorithms.tokens import Tokens
from engine.spec.algorithms import Loss
from workers.local.places import CHECKOUT

REWARDS = [1.0, 0.0, 0.0, 1.0]


def documented() -> Callable[..., Tensor]:
    page = (CHECKOUT / "docs/algorithms.md").read_text().partition("## One loss alone")[2]
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    made: dict[str, Any] = {}
    exec(found.group(1), made)
    function: Callable[..., Tensor] = made["policy_loss"]
    return function


def drawn() -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities of a policy and of the one that sampled, and a mask with holes."""
    generator = torch.Generator().manual_seed(0)
    behaviour = -3 * torch.rand(4, 9, generator=generator) - 0.1
    logprobs = behaviour + torch.randn(4, 9, generator=generator)
    mask = torch.rand(4, 9, generator=generator) < 0.6
    mask[:, 1] = True
    return logprobs.requires_grad_(), behaviour, mask


def naive(loss: Loss, log_ratio: float, mean: float, advantage: float, logprob: float) -> float:
    if loss == "reinforce":
        return -advantage * logprob
    if loss == "cispo":
        return -min(math.exp(log_ratio), 5.0) * advantage * logprob
    low, high, ratio = (
        (0.8, 1.2, math.exp(log_ratio)) if loss == "ppo" else (1 - 3e-4, 1 + 4e-4, math.exp(mean))
    )
    return -min(ratio * advantage, min(max(ratio, low), high) * advantage)


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_the_documented_function_is_the_formula(loss: Loss, aggregation: str) -> None:
    logprobs, behaviour, mask = drawn()
    found = documented()(logprobs, behaviour, mask, REWARDS, loss, aggregation)
    expected = 0.0
    for row, reward in enumerate(REWARDS):
        advantage = (reward - 0.5) / (math.sqrt(1 / 3) + 1e-6)
        ratios = (logprobs - behaviour)[row][mask[row]].tolist()
        mean = sum(ratios) / len(ratios)
        weight = 1 / int(mask.sum())
        if aggregation == "seq-mean-token-mean":
            weight = 1 / (len(REWARDS) * len(ratios))
        for ratio, logprob in zip(ratios, logprobs[row][mask[row]].tolist(), strict=True):
            expected += weight * naive(loss, ratio, mean, advantage, logprob)
    assert float(found.detach()) == pytest.approx(expected, abs=1e-12)
    (gradient,) = torch.autograd.grad(found, logprobs)
    assert not gradient[~mask].any() and gradient[mask].any()


@pytest.mark.parametrize("wrong", ["advantages of answers", "padded rows"])
def test_tensors_that_would_be_broadcast_are_refused(wrong: str) -> None:
    logprobs, behaviour, mask = drawn()
    if wrong == "padded rows":
        given = logprobs, behaviour, torch.ones(4, 9), torch.ones(4, 9)
    else:
        tokens = logprobs[mask]
        given = tokens, behaviour[mask], torch.ones(4, 1), tokens.detach()
    with pytest.raises(ValueError, match=r"one number a token, \[tokens\].*x\[mask\]"):
        Tokens(*given, {})


@pytest.mark.parametrize("name", ["", "token_mean", "grpo", "gae", "none", "kl"])
def test_a_name_that_is_none_is_not_taken_for_another(name: Any) -> None:
    tokens, sequence = torch.zeros(2), torch.tensor([0, 0])
    for compute in (
        lambda: token_weights(name, [1, 1], longest=2),
        lambda: correction_weights(name, tokens, sequence, {"weight_max": 2.0, "weight_min": 0.5}),
        lambda: kl_estimate(tokens, tokens, name),
        lambda: advantages(name, [[1.0, 0.0]], [[1, 1]]),
    ):
        with pytest.raises(ValueError, match=f"There is no .* '{name}': there are "):
            compute()
