"""Asynchronous successive halving (ASHA, Li et al. 2020, arXiv:1810.05934): who goes on at a rung.

A trial that reaches a rung is compared at once with all that were there before, waits for nobody,
and stops unless it is among the best 1/factor. Others come later and make the rung longer: where a
trial that stopped is among the best 1/factor by then, a free place promotes it (Algorithm 2 of the
paper, get_job), the highest rung first. One thing differs from the paper: of fewer than `factor`
the best goes on, so that a small sweep trains somebody to the end (Optuna's rule too).
"""

import math
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


def top(of: int, factor: int) -> int:
    """How many of so many trials at a rung go on."""
    return max(of // factor, 1)


def judge(value: float, better: int, before: int, factor: int) -> Verdict:
    """Whether a trial goes on that brings `value` to a rung: `better` of `before` others are.

    A value that is not finite ends the trial.
    """
    of = before + 1
    if not math.isfinite(value):
        return Verdict(of, of, False)
    return Verdict(better + 1, of, better < top(of, factor))
