"""Weights against the gap between the policy that sampled and the one that trains.

log rho = log pi - log mu, [tokens]: staleness, and whatever the sampler computes otherwise. The
weights, [tokens], carry no gradient. They multiply the policy term before it is aggregated; what
is masked stays in the denominator, so that masking cannot make the rest louder.
"""

import torch
from torch import Tensor


def truncated(log_rho: Tensor, cap: float) -> Tensor:
    """min(rho, cap): truncated importance sampling."""
    return torch.exp(log_rho.detach()).clamp(max=cap)


def icepop(log_rho: Tensor, low: float, high: float) -> Tensor:
    """rho inside [low, high], else 0: tokens on which sampler and trainer differ too far."""
    rho = torch.exp(log_rho.detach())
    return rho * ((rho >= low) & (rho <= high))


def sequence_mean(values: Tensor, sequence: Tensor) -> Tensor:
    """The mean over its trajectory, at each token; keeps the gradient.

    sequence [tokens]: number of each token's trajectory, in any order.
    """
    _, row, lengths = torch.unique(sequence, return_inverse=True, return_counts=True)
    means: Tensor = values.new_zeros(len(lengths)).index_add(0, row, values) / lengths
    return means[row]
