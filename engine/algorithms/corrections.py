"""Weights against the gap between the policy that sampled and the one that trains.

log rho = log pi - log mu, [tokens]: staleness, and whatever the sampler computes otherwise. The
weights, [tokens], carry no gradient. They multiply the policy term before it is aggregated, never
the KL term; what is masked stays in the denominator, so that masking cannot make the rest louder.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.spec.algorithms import CORRECTION_BOUNDS, Bound, Correction, unknown


def correction_weights(
    kind: Correction, log_rho: Tensor, sequence: Tensor, bounds: Mapping[Bound, float]
) -> tuple[Tensor, Tensor]:
    """The weights, and where a bound changed them: +1 above, -1 below (int8); both [tokens].

    truncated: min(rho, weight_max), truncated importance sampling. icepop: rho inside
    [weight_min, weight_max], else 0. geometric: 1 where the geometric mean of rho over the
    token's trajectory lies inside them, else 0; the product would grow with the length and the
    arithmetic mean is ruled by a single token. sequence [tokens]: numbers of the trajectories,
    which must be whole here for geometric. Raises ValueError for another kind.
    """
    if kind not in CORRECTION_BOUNDS or kind == "none":
        raise unknown("correction", kind, [name for name in CORRECTION_BOUNDS if name != "none"])
    log_rho = log_rho.detach()
    if kind == "geometric":
        log_rho = sequence_mean(log_rho, sequence)
    rho = torch.exp(log_rho)
    above, below = rho > bounds["weight_max"], rho < bounds.get("weight_min", 0.0)
    bounded = above.to(torch.int8) - below.to(torch.int8)
    if kind == "truncated":
        return rho.clamp(max=bounds["weight_max"]), bounded
    kept = (bounded == 0).to(rho.dtype)
    return (kept if kind == "geometric" else rho * kept), bounded


def negative_drift_mask(
    behind: Tensor, advantages: Tensor, sequence: Tensor, threshold: float
) -> Tensor:
    """0 for tokens of bad trajectories that the policy has left behind, else 1 (2512.02556).

    behind [tokens]: log-probability under the behaviour policy minus the current one; a trajectory
    is left behind where its mean exceeds `threshold`, and bad where its mean advantage is negative.
    """
    gone = sequence_mean(behind.detach(), sequence) > threshold
    return (~(gone & (sequence_mean(advantages, sequence) < 0))).to(behind.dtype)


def sequence_mean(values: Tensor, sequence: Tensor) -> Tensor:
    """The mean over its trajectory, at each token; keeps the gradient.

    sequence [tokens]: number of each token's trajectory, in any order.
    """
    _, row, lengths = torch.unique(sequence, return_inverse=True, return_counts=True)
    means: Tensor = values.new_zeros(len(lengths)).index_add(0, row, values) / lengths
    return means[row]
