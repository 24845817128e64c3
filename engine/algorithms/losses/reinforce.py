"""REINFORCE: the plain policy gradient; a correction may weigh it."""

import torch

from engine.algorithms.tokens import Terms, Tokens


def reinforce(tokens: Tokens) -> Terms:
    """-A log pi."""
    losses = -tokens.advantages * tokens.logprobs
    return Terms(losses, torch.zeros_like(losses, dtype=torch.int8))
