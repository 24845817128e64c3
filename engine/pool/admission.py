"""When a rollout may start and what is trained on: pure rules of capacity and staleness."""

from collections.abc import Sequence


def staleness(trainer_version: int, version: int) -> int:
    """Trainer version at consumption minus the version that sampled the oldest token.

    Raises ValueError where it would be negative: a token cannot come from a later policy.
    """
    if version > trainer_version:
        raise ValueError(
            f"A token of policy version {version} reached a trainer at version {trainer_version}: "
            "versions are published by the trainer alone and never go back."
        )
    return trainer_version - version


def room(
    *,
    batch: int,
    max_staleness: int,
    capacity: int,
    lag: int,
    training: int,
    waiting: int,
    in_flight: int,
) -> int:
    """Groups that may be started now so that all can still be consumed within `max_staleness`.

    All counts are groups. `lag` is how many versions the worker's weights are behind the
    trainer's, `training` the groups of the batch that the trainer is at. A group started behind
    `ahead` others is consumed `lag + ahead // batch` versions after its own, the batch in training
    counted among those ahead (AReaL, arXiv 2505.24298, equation 3).
    """
    by_staleness = (max_staleness + 1 - lag) * batch - training - waiting - in_flight
    by_capacity = capacity - waiting - in_flight
    return max(0, min(by_staleness, by_capacity))


def refusal(
    rewards: Sequence[float | None], lag: int, max_staleness: int, needs_spread: bool = True
) -> str | None:
    """Why a group cannot be trained on, or None. `lag` is its staleness.

    needs_spread: it teaches only by differences between its valid rewards.
    """
    if lag > max_staleness:
        return "stale"
    if not needs_spread:
        return None
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < 2:
        return "no_valid_reward"
    if min(valid) == max(valid):
        return "zero_variance"
    return None
