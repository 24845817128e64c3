"""Means of few repeats, such as seeds: intervals and differences by Student's t."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.evaluation.intervals import Interval

LARGE = 1e150  # beyond it a square is more than a float holds


@dataclass(frozen=True)
class Sample:
    """What n values come to. `deviation` is of the sample (n - 1); None for a single value, and
    where it is more than a float holds."""

    n: int
    mean: float
    deviation: float | None


def sample(values: Sequence[float]) -> Sample:
    """Of finite values. Raises ValueError where there is none."""
    if not values:
        raise ValueError("a mean needs at least one value")
    largest = max(map(abs, values))
    unit = largest if largest > LARGE else 1.0
    scaled = [value / unit for value in values]
    mean = math.fsum(scaled) / len(scaled)
    if len(values) == 1:
        return Sample(1, mean * unit, None)
    spread = math.fsum((value - mean) ** 2 for value in scaled)
    deviation = math.sqrt(spread / (len(scaled) - 1)) * unit
    return Sample(len(values), mean * unit, deviation if math.isfinite(deviation) else None)


def mean_interval(of: Sample, confidence: float = 0.95) -> Interval | None:
    """mean -+ t(n - 1) s / sqrt(n); None where no spread is known, as of a single value, and where
    an end is more than a float holds."""
    if of.deviation is None:
        return None
    half = quantile(0.5 + confidence / 2, of.n - 1) * of.deviation / math.sqrt(of.n)
    return _finite(Interval(of.mean, of.mean - half, of.mean + half))


def _finite(found: Interval) -> Interval | None:
    return found if math.isfinite(found.lower) and math.isfinite(found.upper) else None


def mean_difference(one: Sample, base: Sample, confidence: float = 0.95) -> Interval | None:
    """one - base of independent samples with unequal variances (Welch 1947, Satterthwaite's
    degrees of freedom); None where either is a single value, or its squares are more than a float
    holds."""
    if one.deviation is None or base.deviation is None:
        return None
    if max(abs(one.mean), abs(base.mean), one.deviation, base.deviation) > LARGE:
        return None
    parts = [of.deviation**2 / of.n for of in (one, base) if of.deviation is not None]
    value, variance = one.mean - base.mean, sum(parts)
    if variance == 0:
        return Interval(value, value, value)
    degrees = 1 / sum(  # by shares: squares of small variances would be zero
        (part / variance) ** 2 / (of.n - 1) for part, of in zip(parts, (one, base), strict=True)
    )
    half = quantile(0.5 + confidence / 2, degrees) * math.sqrt(variance)
    return Interval(value, value - half, value + half)


@lru_cache(maxsize=1024)
def quantile(share: float, degrees: float) -> float:
    """The t below which `share` of Student's distribution lies, by bisection of its distribution
    function. Raises ValueError unless 0 < share < 1 and degrees > 0."""
    if not 0 < share < 1 or not degrees > 0:
        raise ValueError(f"no quantile {share} of Student's t with {degrees} degrees of freedom")
    if share < 0.5:
        return -quantile(1 - share, degrees)
    low, high = 0.0, 1.0
    while below(high, degrees) < share:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if below(middle, degrees) < share else (low, middle)
    return (low + high) / 2


def below(t: float, degrees: float) -> float:
    """Student's distribution function (Abramowitz and Stegun 26.7.1, by the incomplete beta)."""
    if t < 0:
        return 1 - below(-t, degrees)
    return 1 - _beta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction (A&S 26.5.8)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    found = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            found *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * found / a
