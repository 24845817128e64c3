"""Losses per token. Everything is [tokens], over tokens that the policy sampled and no others."""

import torch
from torch import Tensor


def importance_weight(logprobs: Tensor, behaviour: Tensor, weight_max: float) -> Tensor:
    """pi / mu of each token, capped at `weight_max`, without gradient.

    The behaviour policy mu is whatever distribution sampled the token, temperature and staleness
    included.
    """
    return torch.exp(logprobs.detach() - behaviour).clamp(max=weight_max)


def cispo(logprobs: Tensor, behaviour: Tensor, advantages: Tensor, weight_max: float) -> Tensor:
    """-sg[min(pi / mu, weight_max)] * A * log pi (MiniMax-M1, 2506.13585, eq. 4-5).

    The clip acts on the weight, so that no token loses its gradient; there is no lower bound.
    `weight_max` is absolute: the paper's 1 + eps_high.
    """
    return -importance_weight(logprobs, behaviour, weight_max) * advantages * logprobs


def sft(logprobs: Tensor) -> Tensor:
    """Negative log-likelihood."""
    return -logprobs
