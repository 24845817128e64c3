"""What a critic is trained by, and how much of the returns it explains."""

import torch
from torch import Tensor

from engine.algorithms.tokens import Terms


def value_losses(values: Tensor, returns: Tensor, before: Tensor, clip: float) -> Terms:
    """0.5 max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2), all [tokens] (1707.06347).

    before: the values when the returns were estimated. Only `values` carries a gradient.
    """
    bounded = torch.clamp(values, before - clip, before + clip)
    free, held = (values - returns).square(), (bounded - returns).square()
    clipped = (held > free) * torch.sign(values.detach() - before)
    return Terms(0.5 * torch.maximum(free, held), clipped.to(torch.int8))


def explained_variance(values: Tensor, returns: Tensor) -> float | None:
    """1 - Var(R - V) / Var(R) over tokens; None where the returns do not vary."""
    spread = float(returns.double().var(correction=0)) if len(returns) else 0.0
    if spread <= 1e-16:
        return None
    return 1 - float((returns - values).double().var(correction=0)) / spread
