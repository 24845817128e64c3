"""Estimates of the distance to a reference policy from sampled tokens (Schulman's k1, k2, k3)."""

from typing import get_args

import torch
from torch import Tensor

from engine.spec.algorithms import KlKind, unknown


def kl_estimate(
    logprobs: Tensor, reference: Tensor, kind: KlKind, behaviour: Tensor | None = None
) -> Tensor:
    """What each token adds to KL(policy || reference); all [tokens].

    All but k2 and abs are unbiased as values. As a loss k1 has no gradient on average and k3 that
    of the forward KL; k2 and k3_unbiased, which is k3 times the ratio (DeepSeek-V3.2, 2512.02556),
    have the one of the reverse KL, which the value is of.

    behaviour: of the policy that sampled, against which k3_unbiased takes its ratio; the current
    policy itself where it is left out. Raises ValueError for another kind.
    """
    difference = logprobs - reference
    if kind == "k1":
        return difference
    if kind == "abs":
        return difference.abs()
    if kind == "k2":
        return difference.square() / 2
    k3 = torch.expm1(-difference) + difference
    if kind == "k3":
        return k3
    if kind != "k3_unbiased":
        raise unknown("estimate of the KL", kind, get_args(KlKind))
    sampled = logprobs.detach() if behaviour is None else behaviour
    return torch.exp(logprobs - sampled) * k3
