"""When two rewards are equal: sums of the same parts in another order differ by rounding alone."""

from collections.abc import Sequence

RESIDUE = 1e-7  # of the larger one, or of 1; above what estimators take for no spread


def differ(one: float, other: float) -> bool:
    """True where the difference is more than rounding leaves."""
    return abs(one - other) > RESIDUE * max(1.0, abs(one), abs(other))


def tied(rewards: Sequence[float]) -> bool:
    """True where all rewards are equal, and where there is none."""
    return not rewards or not differ(min(rewards), max(rewards))
