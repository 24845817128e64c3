"""Draws tokens from logits, with the log-probability that the trainer will compute for them."""

from collections.abc import Sequence

import torch
from torch import Tensor


def draw(
    logits: Tensor, temperatures: Sequence[float], generator: torch.Generator
) -> tuple[list[int], list[float]]:
    """One token a row, and its log-probability under softmax(logits / temperature).

    logits: [rows, vocab], fp32; temperatures: one a row. 0 takes the likeliest token, with its
    log-probability at temperature 1. Inverts the distribution function: one draw a row. Where a
    row's logits are no distribution (NaN, infinity) the log-probability is NaN, of whatever token.
    """
    temperature = torch.tensor(temperatures, device=logits.device)[:, None]
    greedy = temperature == 0
    p = torch.softmax(logits / torch.where(greedy, 1.0, temperature), dim=-1)
    cumulated = torch.cumsum(p, dim=-1)
    point = torch.rand(len(p), 1, generator=generator, device=logits.device)
    # The first place past the point: a token of probability zero is never drawn.
    tokens = torch.searchsorted(cumulated, point * cumulated[:, -1:], right=True)
    tokens = tokens.clamp_(max=logits.shape[1] - 1)  # nothing is past a point that is NaN
    if 0 in temperatures:
        tokens = torch.where(greedy, logits.argmax(-1, keepdim=True), tokens)
    return tokens[:, 0].tolist(), p.gather(1, tokens).log_()[:, 0].tolist()
