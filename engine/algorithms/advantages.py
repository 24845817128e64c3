"""How much better a trajectory was than expected, from the rewards of its group."""

import math
from collections.abc import Sequence


def group_normalised(rewards: Sequence[float | None], eps: float = 1e-6) -> list[float]:
    """(R - mean) / (std + eps) within one group (GRPO, 2402.03300), std with n - 1.

    A None is an invalid reward: it stays out of mean and std and its advantage is 0.
    Groups without variance, and groups of fewer than two valid rewards, give zeros.
    """
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < 2:
        return [0.0] * len(rewards)
    mean = math.fsum(valid) / len(valid)
    variance = math.fsum((reward - mean) ** 2 for reward in valid) / (len(valid) - 1)
    if variance <= 1e-16:  # equal rewards whose mean is not exact
        return [0.0] * len(rewards)
    scale = math.sqrt(variance) + eps
    return [0.0 if reward is None else (reward - mean) / scale for reward in rewards]
