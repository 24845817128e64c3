"""From a scheme and a trajectory to a reward. What cannot be graded is invalid, never zero."""

import math
from collections.abc import Mapping, Sequence

from engine.records.trajectory import Reward, Trajectory
from engine.rewards.scheme import RewardScheme, RewardTerm, TermKind
from engine.rewards.terms import TERMS, Term


def score(
    scheme: RewardScheme,
    trajectory: Trajectory,
    terms: Mapping[TermKind, Term] = TERMS,
    process_weight: float | None = None,
) -> Reward:
    """The weighted sum of the scheme's terms, each kept raw beside it.

    process_weight: of the process terms of a curriculum; None: where its ramp ends, which is what
    backtests compare. Invalid, with the problem named: where the policy did not end the episode,
    where a term raises, and where a term or the sum is not finite.
    """
    return _graded(scheme, trajectory, terms, process_weight)[0]


def give_reward(
    scheme: RewardScheme, trajectory: Trajectory, process_weight: float | None = None
) -> None:
    """Set the trajectory's reward and each step's part of it; None at each where it is invalid.

    The steps' parts add up to the reward.
    """
    trajectory.reward, parts = _graded(scheme, trajectory, TERMS, process_weight)
    for step, part in zip(trajectory.steps, parts, strict=True):
        step.reward = part


def _graded(
    scheme: RewardScheme,
    trajectory: Trajectory,
    terms: Mapping[TermKind, Term],
    process_weight: float | None,
) -> tuple[Reward, list[float] | list[None]]:
    nothing = [None] * len(trajectory.steps)
    if not trajectory.stop_reason.is_policy:
        problem = f"The episode ended with {trajectory.stop_reason.value}."
        return Reward(None, False, {}, problem), nothing
    raw: dict[str, float | None] = {}
    problems: list[str] = []
    parts_of: dict[TermKind, list[float]] = {}  # weighted, by step
    for term in scheme.terms:
        raw[term.kind] = None
        try:
            parts = _parts(terms[term.kind], term, trajectory)
        except Exception as error:  # a broken grader must not teach: the reward is invalid
            problems.append(f"{term.kind} raised {type(error).__name__}: {error}")
            continue
        value = _sum(parts)
        if not math.isfinite(value):
            problems.append(f"{term.kind} is {value}")
            continue
        raw[term.kind] = value
        parts_of[term.kind] = [term.weight * part for part in parts]
    if problems:
        return Reward(None, False, raw, "; ".join(problems)), nothing
    reward, by_step = _weighed(scheme, raw, parts_of, process_weight)
    for total in (reward.value, reward.outcome, reward.process):
        if total is not None and not math.isfinite(total):
            return Reward(None, False, raw, f"the weighted sum is {total}"), nothing
    return reward, by_step


def _parts(term: Term, fields: RewardTerm, trajectory: Trajectory) -> list[float]:
    parts = [float(part) for part in term(trajectory, fields)]
    if len(parts) != len(trajectory.steps):
        raise ValueError(f"{len(parts)} parts for {len(trajectory.steps)} steps")
    return parts


def _weighed(
    scheme: RewardScheme,
    raw: dict[str, float | None],
    parts_of: dict[TermKind, list[float]],
    process_weight: float | None,
) -> tuple[Reward, list[float]]:
    """The reward and its parts by step; the process terms with their factor, under their cap."""
    plan = scheme.curriculum
    if plan is None:
        by_step = _by_step(list(parts_of.values()))
        return Reward(_sum(by_step), True, raw), by_step
    weight = plan.weight_max if process_weight is None else process_weight
    outcome = _by_step([parts for kind, parts in parts_of.items() if kind not in plan.process])
    process = _by_step([parts_of[kind] for kind in plan.process])
    total, most = _sum(process), plan.cap * scheme.outcome_weight
    factor = weight if abs(weight * total) <= most else most / abs(total)
    by_step = _by_step([outcome, [factor * part for part in process]])
    return Reward(_sum(by_step), True, raw, "", weight, _sum(outcome), total), by_step


def _by_step(parts: Sequence[Sequence[float]]) -> list[float]:
    return [_sum(one) for one in zip(*parts, strict=True)]


def _sum(values: Sequence[float]) -> float:
    """Exactly rounded; infinite where the numbers are too large for one."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.inf
