"""The decay rates of lightning attention: constants of (heads, layer, layers), never learned."""

import math
from enum import StrEnum

import torch
from torch import Tensor


class SlopeSchedule(StrEnum):
    """Published schedules; a head's state shrinks by exp(-slope) with each token."""

    MINIMAX = "minimax"  # ALiBi slopes times a factor that falls with depth (MiniMax-01, M1)
    ALIBI = "alibi"  # no layer factor (MiniCPM-SALA)
    BAILING = "bailing"  # as MiniMax, with the depth shifted by one layer (Ling/Ring linear)
    TRANSNORMER = "transnormer"  # linear in the head index, head 0 has no decay (2307.14995)


def head_slopes(schedule: SlopeSchedule, heads: int, layer: int, layers: int) -> Tensor:
    """Slopes [heads] in fp32 of layer `layer` (counted over all layers, from 0) of `layers`.

    Kept as slopes rather than as exp(-slope): in bf16 a tenth of the latter round to 1.
    """
    if not 0 <= layer < layers:
        raise ValueError(f"layer {layer} is not among 0..{layers - 1}")
    if schedule is SlopeSchedule.TRANSNORMER:
        slopes = [8 * head / heads * (1 - layer / layers) for head in range(heads)]
        return torch.tensor(slopes, dtype=torch.float64).float()
    factor = 1.0
    if schedule is not SlopeSchedule.ALIBI:
        depth = layer if schedule is SlopeSchedule.MINIMAX else max(0, layer - 1)
        factor = 1 - depth / max(1, layers - 1) + 1e-5
    slopes = [slope * factor for slope in _alibi(heads)]
    return torch.tensor(slopes, dtype=torch.float64).float()


def _alibi(heads: int) -> list[float]:
    """Geometric for powers of two; else the next lower power's, then every second of its double."""
    lower = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / lower) for head in range(lower)]
    if lower == heads:
        return slopes
    return slopes + _alibi(2 * lower)[0::2][: heads - lower]
