"""The clipped surrogate of PPO, with a clip of its own for each side."""

import torch
from torch import Tensor

from engine.algorithms.tokens import Terms, Tokens


def ppo(tokens: Tokens) -> Terms:
    """The clipped surrogate of each token's own ratio (1707.06347, eq. 7).

    With dual_clip a negative advantage counts with no more than that ratio (1912.09729).
    """
    ratio = torch.exp(tokens.log_ratio)
    found = clipped_surrogate(ratio, tokens)
    most = -tokens.bounds["dual_clip"] * tokens.advantages
    beyond = (tokens.advantages < 0) & (found.losses > most)
    losses = torch.where(beyond, most, found.losses)
    return Terms(losses, found.clipped.masked_fill(beyond, 1), ratio)


def clipped_surrogate(ratio: Tensor, tokens: Tokens) -> Terms:
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) for ratios r [tokens].

    A token whose ratio has left the band on the side its advantage pushes to has no gradient.
    """
    low, high = 1 - tokens.bounds["eps_low"], 1 + tokens.bounds["eps_high"]
    plain, clipped = ratio * tokens.advantages, ratio.clamp(low, high) * tokens.advantages
    side = torch.sign(tokens.advantages).to(torch.int8)  # rewards push up, penalties down
    return Terms(-torch.minimum(plain, clipped), side * (clipped < plain), ratio)
