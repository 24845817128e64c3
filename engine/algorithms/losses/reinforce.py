"""REINFORCE, with a weight against the age of the batch."""

import torch

from engine.algorithms.corrections import icepop, truncated
from engine.algorithms.tokens import Terms, Tokens


def reinforce(tokens: Tokens) -> Terms:
    """-w A log pi, w the correction of pi / mu without gradient; 1 where there is none."""
    plain = -tokens.advantages * tokens.logprobs
    if tokens.correction == "none":
        return Terms(plain, torch.zeros_like(plain, dtype=torch.bool))
    log_rho, high = tokens.log_ratio.detach(), tokens.bounds["weight_max"]
    if tokens.correction == "truncated":
        weight = truncated(log_rho, high)
    else:
        weight = icepop(log_rho, tokens.bounds["weight_min"], high)
    return Terms(weight * plain, weight != torch.exp(log_rho))
