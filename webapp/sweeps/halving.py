"""Asynchronous successive halving (ASHA, Li et al. 2020, arXiv:1810.05934): who goes on at a rung.

The stopping rule of it: a trial that reaches a rung is compared at once with all that were there
before, waits for nobody, and ends unless it is among the best 1/factor of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """Where a trial stood at a rung when it came there."""

    rank: int  # from 1, the best; equal values share it
    of: int  # trials that were there, this one among them
    stays: bool


def rung_step(rung: int, min_steps: int, factor: int) -> int:
    """The trainer step of a rung, from 0 on."""
    return int(min_steps * factor**rung)


def judge(value: float, before: Sequence[float], factor: int, maximise: bool) -> Verdict:
    """Whether a trial goes on that brings `value` to a rung where others brought `before`.

    Among fewer than `factor` the best goes on alone. A value that is not finite ends the trial.
    """
    of = len(before) + 1
    if not math.isfinite(value):
        return Verdict(of, of, False)
    better = sum(_better(other, value, maximise) for other in before)
    return Verdict(better + 1, of, better < max(of // factor, 1))


def _better(one: float, other: float, maximise: bool) -> bool:
    return math.isfinite(one) and (one > other if maximise else one < other)
