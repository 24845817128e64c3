"""What an off-policy step must show: how far the policy is from the one that sampled."""

import math

import numpy as np
from torch import Tensor


def off_policy_statistics(
    logprobs: Tensor, behaviour: Tensor, weight_max: float = math.inf
) -> dict[str, float]:
    """Over all tokens of a step, however it was cut; logprobs and behaviour: [tokens].

    weight_*: of pi / mu before any bound; ess: effective sample size as a share,
    (sum w)^2 / (n sum w^2), of the weights capped at `weight_max`; sampler_kl: the k3 estimate of
    KL(mu || pi), never negative.
    """
    log_ratio = (logprobs - behaviour).double()
    ratio = log_ratio.exp()
    weight = ratio.clamp(max=weight_max)
    return {
        "weight_mean": float(ratio.mean()),
        "weight_max": float(ratio.max()),
        "weight_p99": float(np.quantile(ratio.numpy(force=True), 0.99)),  # torch's has a limit
        "ess": float(weight.sum() ** 2 / (len(weight) * weight.square().sum())),
        "sampler_kl": float((ratio - 1 - log_ratio).mean()),
    }
