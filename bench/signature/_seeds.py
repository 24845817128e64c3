"""Intervals over seeds: the mean of an arm, and the difference of two arms seed by seed."""

import math
import statistics
from collections.abc import Sequence

from engine.evaluation.intervals import Interval, wilson

__all__ = ["Interval", "mean_interval", "paired", "shown", "wilson"]

# Student's t at 0.975 for 1 to 30 degrees of freedom; more are taken as 30, which is wider.
T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean with its 95% interval by Student's t. Raises ValueError for fewer than two values."""
    if len(values) < 2:
        raise ValueError(f"{len(values)} value has no interval: at least two are needed")
    mean = math.fsum(values) / len(values)
    t = T975[min(len(values) - 1, len(T975)) - 1]
    half = t * statistics.stdev(values, mean) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def paired(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Mean of first - second over seeds in the same order, with its 95% interval."""
    return mean_interval([a - b for a, b in zip(first, second, strict=True)])


def shown(interval: Interval) -> str:
    """Three digits that count: 0.431 [0.40, 0.46]."""
    return f"{interval.value:.3g} [{interval.lower:.3g}, {interval.upper:.3g}]"
