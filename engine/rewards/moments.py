"""Means, variances and the correlation of pairs of numbers, gathered in parts that add up."""

import math
from dataclasses import dataclass


@dataclass
class Moments:
    """Of pairs (x, y). xx, yy, xy: sums of products of deviations from the means, which keep
    their digits where sums of squares would not."""

    count: int = 0
    x: float = 0.0  # mean
    y: float = 0.0  # mean
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        self.merge(Moments(1, x, y))

    def merge(self, other: "Moments") -> None:
        """Chan, Golub and LeVeque's update for two samples."""
        count = self.count + other.count
        if not count:
            return
        dx, dy = other.x - self.x, other.y - self.y
        both = self.count * other.count / count
        self.xx += other.xx + dx * dx * both
        self.yy += other.yy + dy * dy * both
        self.xy += other.xy + dx * dy * both
        self.x += dx * other.count / count
        self.y += dy * other.count / count
        self.count = count

    @property
    def correlation(self) -> float | None:
        """Pearson's, None where x or y does not vary."""
        if min(self.xx, self.yy) <= 1e-12 * max(1.0, self.x**2, self.y**2) * self.count:
            return None
        return max(-1.0, min(1.0, self.xy / math.sqrt(self.xx * self.yy)))

    @property
    def error_of_y(self) -> float | None:
        """Standard error of y's mean, None below two pairs."""
        return math.sqrt(self.yy / (self.count - 1) / self.count) if self.count > 1 else None

    @property
    def error_of_rate(self) -> float:
        """Standard error of x's mean, where x are shares: as if one 0 and one 1 had been seen
        besides (Agresti and Coull's interval), so that certainty takes many observations."""
        wider = Moments(**vars(self))
        wider.add(0.0, 0.0)
        wider.add(1.0, 0.0)
        return math.sqrt(wider.xx) / wider.count
