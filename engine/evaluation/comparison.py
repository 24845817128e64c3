"""Two policies on the same tasks and trials: the gain, its interval, and the tasks that flipped."""

from dataclasses import asdict, dataclass
from typing import Any

from engine.evaluation.intervals import Interval, mcnemar_p, paired_gain
from engine.evaluation.trials import ByTask, Trials


@dataclass(frozen=True)
class Flip:
    """A task of which the policies solve different shares of the trials, with the trajectory of a
    trial of each that shows it ("" where ids were not read)."""

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
    left_out: int  # tasks that only one of them has a rated trial of
    before: float  # completion rate on the common tasks
    after: float
    gain: Interval
    p: float | None  # McNemar's exact test; None where a task has several trials
    gained: list[Flip]
    lost: list[Flip]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(before: ByTask, after: ByTask) -> Comparison:
    """Pairs by task, means over its rated trials. Raises ValueError where no task is common."""
    first = {task for task, of_task in before.items() if of_task.rated}
    last = {task for task, of_task in after.items() if of_task.rated}
    both = sorted(first & last)
    if not both:
        raise ValueError("the two evaluations have no task in common")
    old, new = [before[task].rate for task in both], [after[task].rate for task in both]
    single = all(before[task].rated == after[task].rated == 1 for task in both)
    flips = [
        _flip(task, before[task], after[task])
        for task, was, now in zip(both, old, new, strict=True)
        if was != now
    ]
    return Comparison(
        tasks=len(both),
        left_out=len(first ^ last),
        before=sum(old) / len(both),
        after=sum(new) / len(both),
        gain=paired_gain(old, new),
        p=mcnemar_p([one > 0 for one in old], [one > 0 for one in new]) if single else None,
        gained=[flip for flip in flips if flip.after > flip.before],
        lost=[flip for flip in flips if flip.after < flip.before],
    )


def _flip(task: str, before: Trials, after: Trials) -> Flip:
    old, new = before.rate, after.rate
    return Flip(
        task_id=task,
        category=before.category,
        before=old,
        after=new,
        before_trajectory=before.example(success=old > new),
        after_trajectory=after.example(success=new > old),
    )
