"""pass@k and pass^k: what several trials of a task come to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class PassK:
    """Means over the `tasks` that have at least k trials."""

    k: int
    tasks: int
    at: float  # pass@k: at least one of k succeeds
    hat: float  # pass^k: all of k succeed


def pass_at_k(trials: int, successes: int, k: int) -> float:
    """Chance that at least one of k trials succeeds: 1 - C(n-c, k) / C(n, k) (2107.03374).

    Raises ValueError where n < k.
    """
    _check_k(trials, successes, k)
    if trials - successes < k:
        return 1.0
    failing = 1.0
    for n in range(trials - successes + 1, trials + 1):
        failing *= 1 - k / n
    return 1.0 - failing


def pass_hat_k(trials: int, successes: int, k: int) -> float:
    """Chance that all of k trials succeed: C(c, k) / C(n, k) (tau-bench, 2406.12045).

    Raises ValueError where n < k.
    """
    _check_k(trials, successes, k)
    return math.comb(successes, k) / math.comb(trials, k)


def pass_curve(tasks: Sequence[Sequence[bool]]) -> list[PassK]:
    """Both for every k up to the most trials of a task; tasks with fewer than k are left out."""
    counts = [(len(trials), sum(trials)) for trials in tasks]
    curve = []
    for k in range(1, max((trials for trials, _ in counts), default=0) + 1):
        enough = [(trials, successes) for trials, successes in counts if trials >= k]
        at = fmean(pass_at_k(*count, k) for count in enough)
        hat = fmean(pass_hat_k(*count, k) for count in enough)
        curve.append(PassK(k, len(enough), at, hat))
    return curve


def _check_k(trials: int, successes: int, k: int) -> None:
    if not 0 <= successes <= trials or not 1 <= k <= trials:
        raise ValueError(f"k = {k} with {successes} successes of {trials} trials is undefined")
