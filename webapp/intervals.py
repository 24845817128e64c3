"""Intervals of rates, for pages. Formulas by name; no dependency on the engine's numeric parts."""

import math

Z95 = 1.959963984540054


def wilson(right: int, tasks: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a rate (Wilson 1927), as shares."""
    if tasks <= 0:
        raise ValueError(f"a rate of {tasks} tasks is not defined")
    rate, square = right / tasks, z * z
    centre = rate + square / (2 * tasks)
    spread = z * math.sqrt(rate * (1 - rate) / tasks + square / (4 * tasks * tasks))
    scale = 1 + square / tasks
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def difference_interval(
    one: tuple[int, int], base: tuple[int, int], z: float = Z95
) -> tuple[float, float]:
    """Interval of rate(one) - rate(base) of independent samples (Newcombe 1998, method 10)."""
    p1, p2 = one[0] / one[1], base[0] / base[1]
    low1, high1 = wilson(*one, z)
    low2, high2 = wilson(*base, z)
    lower = p1 - p2 - math.hypot(p1 - low1, high2 - p2)
    upper = p1 - p2 + math.hypot(high1 - p1, p2 - low2)
    return lower, upper
