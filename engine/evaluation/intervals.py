"""Rates with intervals, and two policies compared on the same tasks."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

RESAMPLES = 10_000
_AT_ONCE = 2_000_000  # drawn numbers in memory
_FEW = 16  # different values, of which counts are drawn


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval."""

    value: float
    lower: float
    upper: float


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a rate, one trial per task (Wilson 1927).

    Raises ValueError unless 0 <= successes <= trials and trials >= 1.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes of {trials} trials are no rate")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / trials
    scale = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / scale
    spread = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials)) / scale
    # Exactly 0 and 1 at the ends, where rounding would leave a trace on the wrong side.
    lower = max(0.0, centre - spread) if successes else 0.0
    return Interval(rate, lower, min(1.0, centre + spread) if successes < trials else 1.0)


def clustered(
    tasks: Sequence[Sequence[float]], confidence: float = 0.95, resamples: int = RESAMPLES
) -> Interval:
    """Mean over tasks of each one's mean over its trials, with a percentile bootstrap interval.

    Whole tasks are drawn again, with all their trials: trials of one task are no independent
    cases. Raises ValueError where there is no task, or one has no trial.
    """
    if not tasks or not all(tasks):
        raise ValueError("an interval over tasks needs at least one task, each with a trial")
    return _bootstrap([math.fsum(one) / len(one) for one in tasks], 0.0, confidence, resamples)


def rate(tasks: Sequence[Sequence[bool]]) -> Interval:
    """A rate over tasks: Wilson's interval for one trial per task, clustered otherwise."""
    if all(len(one) == 1 for one in tasks):
        return wilson(sum(one[0] for one in tasks), len(tasks))
    return clustered(tasks)


def mcnemar_p(before: Sequence[bool], after: Sequence[bool]) -> float:
    """Exact two-sided p-value that two policies solve the same tasks equally often.

    Binomial over the tasks that exactly one of them solved; 1.0 where there is none.
    """
    _check_paired(before, after)
    gained = sum(new and not old for old, new in zip(before, after, strict=True))
    lost = sum(old and not new for old, new in zip(before, after, strict=True))
    discordant = gained + lost
    tail = sum(math.comb(discordant, k) for k in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**discordant))


def paired_gain(
    before: Sequence[float],
    after: Sequence[float],
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Interval:
    """Mean of after - before over tasks, with a bootstrap interval that resamples tasks.

    One number from 0 to 1 a task, such as success or the mean over trials: a task's trials stay
    together.
    """
    _check_paired(before, after)
    gains = [new - old for old, new in zip(before, after, strict=True)]
    return _bootstrap(gains, -1.0, confidence, resamples)


def difference(one: Interval, base: Interval) -> Interval:
    """one - base of independent samples, from the interval of each (Newcombe 1998, method 10)."""
    value = one.value - base.value
    return Interval(
        value,
        value - math.hypot(one.value - one.lower, base.upper - base.value),
        value + math.hypot(one.upper - one.value, base.value - base.lower),
    )


def _bootstrap(
    values: Sequence[float], least: float, confidence: float, resamples: int
) -> Interval:
    """The mean of values from `least` to 1 and its percentile interval; the draws are fixed, so
    that it is always the same.

    Drawing again shows nothing that was not seen, and equal values would leave no width at all. So
    an end is at least as far as if the share of values that so many may have missed, by Wilson's
    interval of none of them, were `least`, or 1.
    """
    counts = Counter(values)
    if len(counts) <= _FEW:
        ends = _ends_of_few(tuple(sorted(counts.items())), confidence, resamples)
    else:
        ends = _ends_of_many(values, confidence, resamples)
    mean, unseen = math.fsum(values) / len(values), wilson(0, len(values), confidence).upper
    lower = min(ends[0], mean - unseen * (mean - least))
    return Interval(mean, lower, max(ends[1], mean + unseen * (1 - mean)))


@lru_cache(maxsize=4_096)
def _ends_of_few(
    counts: tuple[tuple[float, int], ...], confidence: float, resamples: int
) -> tuple[float, float]:
    """Of so many of each value. How often each is drawn is multinomial: a few numbers instead of
    one for each task."""
    import numpy as np  # here: the web tier loads it only where two evaluations are compared

    kinds, numbers = (np.asarray(column, dtype=np.float64) for column in zip(*counts, strict=True))
    count = numbers.sum()
    drawn = np.random.default_rng(0).multinomial(int(count), numbers / count, resamples)
    return _ends(drawn @ kinds / count, confidence)


def _ends_of_many(
    values: Sequence[float], confidence: float, resamples: int
) -> tuple[float, float]:
    import numpy as np

    given = np.asarray(values, dtype=np.float64)
    draw, count, means = np.random.default_rng(0), len(given), []
    rows = max(1, _AT_ONCE // count)
    for begin in range(0, resamples, rows):
        shape = min(rows, resamples - begin), count
        means.append(given[draw.integers(0, count, shape)].mean(axis=1))
    return _ends(np.concatenate(means), confidence)


def _ends(means: Any, confidence: float) -> tuple[float, float]:
    tail, most = (1 - confidence) / 2, len(means) - 1
    low, high = int(tail * len(means)), min(most, math.ceil((1 - tail) * len(means)) - 1)
    means.partition((low, high))
    return float(means[low]), float(means[high])


def _check_paired(before: Sequence[float], after: Sequence[float]) -> None:
    if len(before) != len(after) or not before:
        raise ValueError(
            f"{len(before)} results before and {len(after)} after: a paired comparison needs both "
            "policies on the same tasks, at least one"
        )
