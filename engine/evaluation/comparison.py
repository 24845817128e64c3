"""Two policies on the same tasks and trials: the gain, its interval, and the tasks that flipped."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.evaluation.intervals import Interval, mcnemar_p, paired_gain
from engine.evaluation.outcomes import Outcome, by_task


@dataclass(frozen=True)
class Flip:
    """A task of which the policies solve different shares of the trials, with one trial of each
    that shows it."""

    task_id: str
    category: str
    before: float
    after: float
    before_trajectory: str
    after_trajectory: str


@dataclass(frozen=True)
class Comparison:
    """`after` minus `before` over the tasks that both played; the others are only counted."""

    tasks: int
    left_out: int  # tasks that only one of them has a valid trial of
    before: float  # completion rate on the common tasks
    after: float
    gain: Interval
    p: float | None  # McNemar's exact test; None where a task has several trials
    gained: list[Flip]
    lost: list[Flip]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(before: Sequence[Outcome], after: Sequence[Outcome]) -> Comparison:
    """Pairs by task, means over its trials. Raises ValueError where no task is common."""
    first, last = by_task(before), by_task(after)
    both = sorted(first.keys() & last.keys())
    if not both:
        raise ValueError("the two evaluations have no task in common")
    rates = [(_rate(first[task]), _rate(last[task])) for task in both]
    old, new = [pair[0] for pair in rates], [pair[1] for pair in rates]
    single = all(len(first[task]) == len(last[task]) == 1 for task in both)
    flips = [_flip(first[task], last[task]) for task in both]
    return Comparison(
        tasks=len(both),
        left_out=len(first.keys() ^ last.keys()),
        before=sum(old) / len(both),
        after=sum(new) / len(both),
        gain=paired_gain(old, new),
        p=mcnemar_p([one > 0 for one in old], [one > 0 for one in new]) if single else None,
        gained=[flip for flip in flips if flip.after > flip.before],
        lost=[flip for flip in flips if flip.after < flip.before],
    )


def _rate(trials: Sequence[Outcome]) -> float:
    return sum(one.success for one in trials) / len(trials)


def _flip(before: Sequence[Outcome], after: Sequence[Outcome]) -> Flip:
    old, new = _rate(before), _rate(after)
    return Flip(
        task_id=before[0].task_id,
        category=before[0].category,
        before=old,
        after=new,
        before_trajectory=_example(before, success=old > new),
        after_trajectory=_example(after, success=new > old),
    )


def _example(trials: Sequence[Outcome], success: bool) -> str:
    """The first trial that ended as asked, else the first."""
    return next((one for one in trials if one.success is success), trials[0]).trajectory
