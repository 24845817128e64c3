"""What another reward scheme would have said about stored trajectories. Pure functions."""

import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from engine.records.trajectory import Reward, Trajectory
from engine.rewards.scheme import RewardScheme
from engine.rewards.score import score
from engine.rewards.ties import differ, tied

BINS = 20
SHOWN = 10


@dataclass(frozen=True)
class Distribution:
    """Of the valid rewards; `counts` per bin between the backtest's edges. None: no valid one."""

    valid: int
    invalid: int
    mean: float | None
    deviation: float | None  # of the population
    smallest: float | None
    largest: float | None
    counts: list[int]


@dataclass(frozen=True)
class Change:
    """A trajectory that is valid under both schemes."""

    trajectory_id: str
    task_id: str
    old: float
    new: float


@dataclass(frozen=True)
class Backtest:
    """Both schemes over the same trajectories.

    `edges`: BINS + 1 bin edges that both distributions share; empty where nothing is valid.
    `flips`: pairs within a group that the two schemes put in opposite strict orders, out of
    `ordered_pairs` that the old one put in any.
    `silent_*`: groups of two or more without any difference in reward, out of `groups`: they teach
    nothing under group-relative advantages.
    """

    edges: list[float]
    old: Distribution
    new: Distribution
    flips: int
    ordered_pairs: int
    groups: int
    silent_old: int
    silent_new: int
    gainers: list[Change]
    losers: list[Change]


def backtest(
    old_scheme: RewardScheme,
    new_scheme: RewardScheme,
    trajectories: Sequence[Trajectory],
    grade: Callable[[RewardScheme, Trajectory], Reward] = score,
) -> Backtest:
    """Grades every trajectory with both schemes; invalid rewards are counted and left out.

    A curriculum is graded where its ramp ends. Differences that rounding leaves are none.
    """
    old = [grade(old_scheme, trajectory).value for trajectory in trajectories]
    new = [grade(new_scheme, trajectory).value for trajectory in trajectories]
    edges = _edges([value for value in (*old, *new) if value is not None])
    groups: dict[str, list[int]] = {}
    for index, trajectory in enumerate(trajectories):
        groups.setdefault(trajectory.group_id, []).append(index)
    several = [members for members in groups.values() if len(members) > 1]
    pairs = [_order_of_pairs(members, old, new) for members in several]
    changes = [
        Change(trajectory.id, trajectory.task_id, before, after)
        for trajectory, before, after in zip(trajectories, old, new, strict=True)
        if before is not None and after is not None and differ(before, after)
    ]
    changes.sort(key=lambda change: change.old - change.new)
    return Backtest(
        edges=edges,
        old=_distribution(old, edges),
        new=_distribution(new, edges),
        flips=sum(flips for flips, _ in pairs),
        ordered_pairs=sum(ordered for _, ordered in pairs),
        groups=len(several),
        silent_old=sum(_silent(members, old) for members in several),
        silent_new=sum(_silent(members, new) for members in several),
        gainers=[change for change in changes if change.new > change.old][:SHOWN],
        losers=[change for change in reversed(changes) if change.new < change.old][:SHOWN],
    )


def _order_of_pairs(
    members: Sequence[int], old: Sequence[float | None], new: Sequence[float | None]
) -> tuple[int, int]:
    """Pairs that flip, and pairs in strict order under the old scheme."""
    both = [
        (before, after)
        for before, after in ((old[index], new[index]) for index in members)
        if before is not None and after is not None
    ]
    flips = ordered = 0
    for (old_a, new_a), (old_b, new_b) in combinations(both, 2):
        in_order = differ(old_a, old_b)
        ordered += in_order
        flips += in_order and differ(new_a, new_b) and (old_a < old_b) != (new_a < new_b)
    return flips, ordered


def _silent(members: Sequence[int], rewards: Sequence[float | None]) -> bool:
    return tied([reward for index in members if (reward := rewards[index]) is not None])


def _edges(values: Sequence[float]) -> list[float]:
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return [low + (high - low) * place / BINS for place in range(BINS)] + [high]


def _distribution(rewards: Sequence[float | None], edges: Sequence[float]) -> Distribution:
    valid = [value for value in rewards if value is not None]
    counts = [0] * max(0, len(edges) - 1)
    for value in valid:
        counts[min(bisect_right(edges, value) - 1, len(counts) - 1)] += 1
    return Distribution(
        valid=len(valid),
        invalid=len(rewards) - len(valid),
        mean=statistics.fmean(valid) if valid else None,
        deviation=statistics.pstdev(valid) if valid else None,
        smallest=min(valid, default=None),
        largest=max(valid, default=None),
        counts=counts,
    )
