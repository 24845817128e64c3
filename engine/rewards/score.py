"""From a scheme and a trajectory to a reward. What cannot be graded is invalid, never zero."""

import math
from collections.abc import Mapping, Sequence

from engine.records.trajectory import Reward, Trajectory
from engine.rewards.scheme import RewardScheme, TermKind
from engine.rewards.terms import TERMS, Term


def score(
    scheme: RewardScheme, trajectory: Trajectory, terms: Mapping[TermKind, Term] = TERMS
) -> Reward:
    """The weighted sum of the scheme's terms, each kept raw beside it.

    Invalid, with the problem named: where the policy did not end the episode, where a term raises,
    and where a term or the sum is not finite.
    """
    return _graded(scheme, trajectory, terms)[0]


def give_reward(scheme: RewardScheme, trajectory: Trajectory) -> None:
    """Set the trajectory's reward and each step's part of it; None at each where it is invalid.

    The steps' parts add up to the reward.
    """
    trajectory.reward, parts = _graded(scheme, trajectory, TERMS)
    for step, part in zip(trajectory.steps, parts, strict=True):
        step.reward = part


def _graded(
    scheme: RewardScheme, trajectory: Trajectory, terms: Mapping[TermKind, Term]
) -> tuple[Reward, list[float] | list[None]]:
    nothing = [None] * len(trajectory.steps)
    if not trajectory.stop_reason.is_policy:
        problem = f"The episode ended with {trajectory.stop_reason.value}."
        return Reward(None, False, {}, problem), nothing
    raw: dict[str, float | None] = {}
    problems: list[str] = []
    weighted: list[list[float]] = []  # by term, then by step
    for term in scheme.terms:
        raw[term.kind] = None
        try:
            parts = [float(part) for part in terms[term.kind](trajectory, term)]
            value = math.fsum(parts)
            if len(parts) != len(trajectory.steps):
                raise ValueError(f"{len(parts)} parts for {len(trajectory.steps)} steps")
        except Exception as error:  # a broken grader must not teach: the reward is invalid
            problems.append(f"{term.kind} raised {type(error).__name__}: {error}")
            continue
        if not math.isfinite(value):
            problems.append(f"{term.kind} is {value}")
            continue
        raw[term.kind] = value
        weighted.append([term.weight * part for part in parts])
    by_step = [_sum(parts) for parts in zip(*weighted, strict=True)]
    total = _sum(by_step)
    if not problems and not math.isfinite(total):
        problems.append(f"the weighted sum is {total}")
    if problems:
        return Reward(None, False, raw, "; ".join(problems)), nothing
    return Reward(total, True, raw), by_step


def _sum(values: Sequence[float]) -> float:
    """Exactly rounded; infinite where the numbers are too large for one."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.inf
