"""When a rollout may start and what is trained on: pure rules of capacity and staleness."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.rewards.ties import tied

ALL_SOLVED, ALL_FAILED, ZERO_VARIANCE = "all_solved", "all_failed", "zero_variance"


class NoBatchError(Exception):
    """Group after group teaches nothing; the message says what was sampled and what to change."""


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


@dataclass(frozen=True)
class Wanted:
    """Which groups a stage learns from.

    needs_spread: those whose rewards differ (DAPO's dynamic sampling, 2503.14476); needs_reward:
    those with a reward at all; rounds: batches that may be sampled for one step, None: any number.
    """

    needs_spread: bool = True
    needs_reward: bool = True
    rounds: int | None = None


def refusal(
    rewards: Sequence[float | None], solved: int, lag: int, max_staleness: int, wanted: Wanted
) -> str | None:
    """Why a group cannot be trained on, or None. `lag` is its staleness, `solved` how many of its
    trajectories with a reward succeeded.

    Judged by the very rewards that are trained on; where they are equal, the reason says of what.
    """
    if lag > max_staleness:
        return "stale"
    valid = [reward for reward in rewards if reward is not None]
    if len(valid) < (2 if wanted.needs_spread else wanted.needs_reward):
        return "no_valid_reward"
    if not wanted.needs_spread or not tied(valid):
        return None
    if solved == len(valid):
        return ALL_SOLVED
    return ALL_FAILED if solved == 0 else ZERO_VARIANCE


def no_batch(step: int, batch: int, rounds: int, sampled: Mapping[str, int]) -> str:
    """What to tell where a step found no batch in so many rounds. sampled: groups by what became
    of them: admitted, or why not."""
    total = sum(sampled.values())
    solved, failed = sampled.get(ALL_SOLVED, 0), sampled.get(ALL_FAILED, 0)
    admitted = sampled.get("admitted", 0)
    other = total - solved - failed - admitted
    advice = "harder" if solved >= failed else "easier"
    return (
        f"Step {step} found no {batch} groups that teach in {rounds} rounds of sampling: of "
        f"{total} groups {solved} were all solved, {failed} all failed, {other} were refused "
        f"otherwise and {admitted} admitted. Take {advice} tasks (hops), larger groups "
        "(group_size), more rounds (refill_rounds), or turn dynamic_sampling off."
    )
