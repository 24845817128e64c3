"""The clipped surrogate of PPO, with a clip of its own for each side."""

import torch

from engine.algorithms.tokens import Terms, Tokens


def ppo(tokens: Tokens) -> Terms:
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) with r = pi / mu (1707.06347, eq. 7).

    A token whose ratio has left the band on the side its advantage pushes to has no gradient.
    """
    ratio = torch.exp(tokens.log_ratio)
    low, high = 1 - tokens.bounds["eps_low"], 1 + tokens.bounds["eps_high"]
    plain, clipped = ratio * tokens.advantages, ratio.clamp(low, high) * tokens.advantages
    return Terms(-torch.minimum(plain, clipped), clipped < plain)
