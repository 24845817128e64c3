"""GSPO: one ratio for a whole trajectory, clipped as one."""

import torch

from engine.algorithms.losses.ppo import clipped_surrogate
from engine.algorithms.tokens import Terms, Tokens


def gspo(tokens: Tokens) -> Terms:
    """-min(s A, clip(s, 1 - eps_low, 1 + eps_high) A), s the geometric mean of the ratio over the
    trajectory (2507.18071, eq. 5-7), in the form that gives each token its part of the gradient
    (eq. 13): the same value and gradient where a trajectory has one advantage.
    """
    ratio = torch.exp(tokens.mean_log_ratio + tokens.logprobs - tokens.logprobs.detach())
    return clipped_surrogate(ratio, tokens)
