"""What another reward scheme would have said about stored trajectories: counted as they come."""

import heapq
import statistics
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.records.trajectory import Reward, Trajectory
from engine.rewards.rank_flips import rank_flips
from engine.rewards.scheme import RewardScheme
from engine.rewards.score import score
from engine.rewards.ties import differ, tied

BINS = 20
SHOWN = 10
MOST_PROBLEMS = 10


@dataclass(frozen=True)
class Distribution:
    """Of the valid rewards; `counts` per bin between the backtest's edges. None: no valid one.

    `problems`: why rewards are invalid, by the most frequent reasons.
    """

    valid: int
    invalid: int
    mean: float | None
    deviation: float | None  # of the population
    smallest: float | None
    largest: float | None
    counts: list[int]
    problems: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """A trajectory that is valid under both schemes. `terms`: the new one's, raw."""

    trajectory_id: str
    task_id: str
    old: float
    new: float
    terms: Mapping[str, float | None] = field(default_factory=dict)


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


class Tally:
    """Counts graded trajectories one by one; keeps two numbers of each, never the trajectory."""

    def __init__(self) -> None:
        self._old, self._new = _Grades(), _Grades()
        self._groups: dict[str, list[int]] = {}
        # Heaps of the SHOWN largest gains and losses, as (size, -order, change).
        self._gainers: list[tuple[float, int, Change]] = []
        self._losers: list[tuple[float, int, Change]] = []

    def __len__(self) -> int:
        return len(self._old.values)

    def add(
        self, trajectory_id: str, task_id: str, group_id: str, old: Reward, new: Reward
    ) -> None:
        """`group_id` joins the samples of one prompt at one policy; "": it has no group."""
        index = len(self)
        self._old.add(old)
        self._new.add(new)
        if group_id:
            self._groups.setdefault(group_id, []).append(index)
        before, after = old.value, new.value
        if before is None or after is None or not differ(before, after):
            return
        change = Change(trajectory_id, task_id, before, after, new.terms)
        heap = self._gainers if after > before else self._losers
        entry = (abs(after - before), -index, change)
        if len(heap) < SHOWN:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)

    def result(self, look: Callable[[], None] = lambda: None) -> Backtest:
        """`look` is called for each trajectory of a group: who waits may stop by raising in it."""
        old, new = self._old.rewards(), self._new.rewards()
        edges = _edges([value for value in (*old, *new) if value is not None])
        several = [members for members in self._groups.values() if len(members) > 1]
        pairs = [rank_flips(_valid_under_both(members, old, new), look) for members in several]
        return Backtest(
            edges=edges,
            old=self._old.distribution(edges),
            new=self._new.distribution(edges),
            flips=sum(flips for flips, _ in pairs),
            ordered_pairs=sum(ordered for _, ordered in pairs),
            groups=len(several),
            silent_old=sum(_silent(members, old) for members in several),
            silent_new=sum(_silent(members, new) for members in several),
            gainers=[change for *_, change in sorted(self._gainers, reverse=True)],
            losers=[change for *_, change in sorted(self._losers, reverse=True)],
        )


def backtest(
    old_scheme: RewardScheme,
    new_scheme: RewardScheme,
    trajectories: Iterable[Trajectory],
    grade: Callable[[RewardScheme, Trajectory], Reward] = score,
) -> Backtest:
    """Grades every trajectory with both schemes; invalid rewards are counted and left out.

    A curriculum is graded where its ramp ends. Differences that rounding leaves are none.
    """
    tally = Tally()
    for one in trajectories:
        tally.add(one.id, one.task_id, one.group_id, grade(old_scheme, one), grade(new_scheme, one))
    return tally.result()


class _Grades:
    """The rewards of one scheme: 8 bytes each, NaN where it is invalid."""

    def __init__(self) -> None:
        self.values = array("d")
        self.problems: Counter[str] = Counter()

    def add(self, reward: Reward) -> None:
        self.values.append(float("nan") if reward.value is None else reward.value)
        if reward.value is None:
            self.problems[reward.problem] += 1

    def rewards(self) -> list[float | None]:
        return [value if value == value else None for value in self.values]

    def distribution(self, edges: Sequence[float]) -> Distribution:
        valid = [value for value in self.values if value == value]
        counts = [0] * max(0, len(edges) - 1)
        for value in valid:
            counts[min(bisect_right(edges, value) - 1, len(counts) - 1)] += 1
        return Distribution(
            valid=len(valid),
            invalid=len(self.values) - len(valid),
            mean=statistics.fmean(valid) if valid else None,
            deviation=statistics.pstdev(valid) if valid else None,
            smallest=min(valid, default=None),
            largest=max(valid, default=None),
            counts=counts,
            problems=dict(self.problems.most_common(MOST_PROBLEMS)),
        )


def _valid_under_both(
    members: Sequence[int], old: Sequence[float | None], new: Sequence[float | None]
) -> list[tuple[float, float]]:
    return [
        (before, after)
        for before, after in ((old[index], new[index]) for index in members)
        if before is not None and after is not None
    ]


def _silent(members: Sequence[int], rewards: Sequence[float | None]) -> bool:
    return tied([reward for index in members if (reward := rewards[index]) is not None])


def _edges(values: Sequence[float]) -> list[float]:
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return [low + (high - low) * place / BINS for place in range(BINS)] + [high]
