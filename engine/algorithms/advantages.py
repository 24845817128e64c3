"""How much better a trajectory was than expected, from the rewards of its group or of its batch.

A reward of None is invalid: it moves nobody's baseline and its own advantage is 0. Rewards of a
group that do not differ, and a group of one, teach nothing where the group is the baseline.
"""

import math
from collections.abc import Callable, Sequence

from engine.spec.algorithms import Advantage, unknown

SAME = 1e-8  # a standard deviation below it comes from rounding, not from the rewards
EPS = 1e-6

Rewards = Sequence[float | None]


def advantages(
    kind: Advantage, groups: Sequence[Rewards], lengths: Sequence[Sequence[int]]
) -> list[list[float]]:
    """One number a trajectory, for each group of rewards.

    lengths: loss tokens of each trajectory, by which the estimators of the batch weigh it: they
    whiten over tokens. Raises ValueError for another kind, such as one that gives a number a token.
    """
    if kind in GROUP:
        return [GROUP[kind](rewards) for rewards in groups]
    if kind not in BATCH:
        raise unknown("advantage of whole trajectories", kind, [*GROUP, *BATCH])
    centred = [group_centred(one) for one in groups] if kind == "group_batch_whitened" else groups
    flat = [value for group in centred for value in group]
    valid = [reward is not None for group in groups for reward in group]
    tokens = [length for group in lengths for length in group]
    found = iter(
        _over_batch(
            [value if ok else None for value, ok in zip(flat, valid, strict=True)],
            tokens,
            scale=kind != "batch_centred",
        )
    )
    return [[next(found) for _ in group] for group in groups]


def group_normalised(rewards: Rewards) -> list[float]:
    """(R - mean) / (std + eps) within one group (GRPO, 2402.03300), std with n - 1."""
    centred = group_centred(rewards)
    valid = sum(reward is not None for reward in rewards)
    if not any(centred):
        return centred
    scale = math.sqrt(math.fsum(c * c for c in centred) / (valid - 1)) + EPS
    return [c / scale for c in centred]


def group_centred(rewards: Rewards) -> list[float]:
    """R - mean within one group (Dr. GRPO, 2503.20783, which leaves the deviation out)."""
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < 2:
        return [0.0] * len(rewards)
    mean = math.fsum(valid) / len(valid)
    centred = [0.0 if reward is None else reward - mean for reward in rewards]
    spread = math.fsum(c * c for c in centred) / (len(valid) - 1)
    return [0.0] * len(rewards) if spread <= SAME**2 else centred


def leave_one_out(rewards: Rewards) -> list[float]:
    """R_i - mean of the others (RLOO, 2402.14740), which is G / (G - 1) times the centred one."""
    valid = sum(reward is not None for reward in rewards)
    return [c * valid / (valid - 1) if c else 0.0 for c in group_centred(rewards)]


GROUP: dict[str, Callable[[Rewards], list[float]]] = {
    "group_normalised": group_normalised,
    "group_centred": group_centred,
    "leave_one_out": leave_one_out,
}

BATCH = ("batch_centred", "batch_whitened", "group_batch_whitened")


def _over_batch(values: Rewards, tokens: Sequence[int], *, scale: bool) -> list[float]:
    """Values minus their mean over all tokens, by the deviation too (REINFORCE++, 2501.03262)."""
    known = [(v, n) for v, n in zip(values, tokens, strict=True) if v is not None]
    total = sum(n for _, n in known)
    if total < 2:
        return [0.0] * len(values)
    mean = math.fsum(v * n for v, n in known) / total
    variance = math.fsum((v - mean) ** 2 * n for v, n in known) / (total - 1)
    if variance <= SAME**2:
        return [0.0] * len(values)
    deviation = math.sqrt(variance) + EPS if scale else 1.0
    return [0.0 if v is None else (v - mean) / deviation for v in values]
