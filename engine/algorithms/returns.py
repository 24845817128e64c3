"""Advantages that differ from token to token, computed over sampled tokens and no others.

All tensors are [tokens]: the sampled tokens of whole trajectories, one trajectory after the other.
What the environment wrote was left out before, so that no recursion runs across it. `sequence`
[tokens] is the number of each token's trajectory, never falling.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Gae(NamedTuple):
    """Advantages and value targets, both [tokens], without gradient."""

    advantages: Tensor
    returns: Tensor


def place_outcomes(outcomes: Tensor, sequence: Tensor) -> Tensor:
    """Token rewards [tokens]: each trajectory's outcome on its last sampled token, else zero.

    outcomes: [trajectories]. A trajectory of which nothing was sampled has no place for one.
    """
    last = torch.ones_like(sequence, dtype=torch.bool)
    last[:-1] = sequence[1:] != sequence[:-1]
    return torch.where(last, outcomes[sequence], 0.0)


def discounted_returns(rewards: Tensor, sequence: Tensor, gamma: float = 1.0) -> Tensor:
    """Reward-to-go of each token within its trajectory: G_t = r_t + gamma G_{t+1}."""
    rows = _Rows(sequence)
    padded = rows.pad(rewards)
    returns = torch.empty_like(padded)
    following = padded.new_zeros(len(padded))
    for t in reversed(range(padded.shape[1])):
        following = padded[:, t] + gamma * following
        returns[:, t] = following
    return rows.flatten(returns)


def generalised_advantages(
    rewards: Tensor, values: Tensor, sequence: Tensor, gamma: float = 1.0, lam: float = 1.0
) -> Gae:
    """GAE (1506.02438): A_t = delta_t + gamma lam A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t.

    values: the critic's estimate before each token; after a trajectory's last token it is zero.
    """
    rows = _Rows(sequence)
    reward, value = rows.pad(rewards.detach()), rows.pad(values.detach())
    advantages = torch.empty_like(value)
    following = next_value = value.new_zeros(len(value))
    for t in reversed(range(value.shape[1])):
        delta = reward[:, t] + gamma * next_value - value[:, t]
        following = delta + gamma * lam * following
        advantages[:, t] = following
        next_value = value[:, t]
    return Gae(rows.flatten(advantages), rows.flatten(advantages + value))


def whitened(values: Tensor, eps: float = 1e-8) -> Tensor:
    """(x - mean) / sqrt(var + eps) over all tokens of a step, var with n - 1; fp64 inside.

    Fewer than two tokens, or tokens without variance, cannot be scaled: they give zeros.
    """
    exact = values.double()
    centred = exact - exact.mean() if len(exact) else exact
    variance = centred.square().sum() / max(1, len(exact) - 1)
    if variance <= 1e-16:
        return torch.zeros_like(values)
    return (centred / torch.sqrt(variance + eps)).to(values.dtype)


class _Rows:
    """Between [tokens] and [trajectories, longest], whose rows end with zeros."""

    def __init__(self, sequence: Tensor) -> None:
        _, row, lengths = torch.unique_consecutive(
            sequence, return_inverse=True, return_counts=True
        )
        starts = lengths.cumsum(0) - lengths
        self._place = row, torch.arange(len(sequence), device=sequence.device) - starts[row]
        self._shape = len(lengths), int(lengths.max()) if len(lengths) else 0

    def pad(self, values: Tensor) -> Tensor:
        padded = values.new_zeros(self._shape)
        padded[self._place] = values
        return padded

    def flatten(self, padded: Tensor) -> Tensor:
        return padded[self._place]
