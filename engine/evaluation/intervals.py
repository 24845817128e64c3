"""Rates with intervals, and two policies compared on the same tasks."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


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
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Mean of after - before over tasks, with a bootstrap interval that resamples tasks.

    One number a task, such as success or the mean over trials: a task's trials stay together.
    """
    _check_paired(before, after)
    gains = [new - old for old, new in zip(before, after, strict=True)]
    draw = random.Random(seed)
    tasks = len(gains)
    means = sorted(math.fsum(draw.choices(gains, k=tasks)) / tasks for _ in range(resamples))
    tail = (1 - confidence) / 2
    lower = means[int(tail * resamples)]
    upper = means[min(resamples - 1, math.ceil((1 - tail) * resamples) - 1)]
    return Interval(math.fsum(gains) / tasks, lower, upper)


def pass_at_k(trials: int, successes: int, k: int) -> float:
    """Chance that at least one of k trials succeeds: 1 - C(n-c, k) / C(n, k) (2107.03374)."""
    _check_k(trials, successes, k)
    if trials - successes < k:
        return 1.0
    failing = 1.0
    for n in range(trials - successes + 1, trials + 1):
        failing *= 1 - k / n
    return 1.0 - float(failing)


def pass_hat_k(trials: int, successes: int, k: int) -> float:
    """Chance that all of k trials succeed: C(c, k) / C(n, k) (tau-bench, 2406.12045)."""
    _check_k(trials, successes, k)
    return math.comb(successes, k) / math.comb(trials, k)


def _check_paired(before: Sequence[float], after: Sequence[float]) -> None:
    if len(before) != len(after) or not before:
        raise ValueError(
            f"{len(before)} results before and {len(after)} after: a paired comparison needs both "
            "policies on the same tasks, at least one"
        )


def _check_k(trials: int, successes: int, k: int) -> None:
    if not 0 <= successes <= trials or not 1 <= k <= trials:
        raise ValueError(f"k = {k} with {successes} successes of {trials} trials is undefined")
