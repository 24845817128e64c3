"""CISPO: the clip acts on the importance weight, so that no token loses its gradient."""

import torch

from engine.algorithms.tokens import Terms, Tokens


def cispo(tokens: Tokens) -> Terms:
    """-sg[min(r, weight_max)] A log pi, r the ratio (MiniMax-M1, 2506.13585, eq. 4-5).

    There is no lower bound. weight_max is absolute: the paper's 1 + eps_high.
    """
    ratio = torch.exp(tokens.log_ratio.detach())
    cap = tokens.bounds["weight_max"]
    losses = -ratio.clamp(max=cap) * tokens.advantages * tokens.logprobs
    return Terms(losses, (ratio > cap).to(torch.int8), ratio)
