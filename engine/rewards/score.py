"""From a scheme and a trajectory to a reward. What cannot be graded is invalid, never zero."""

import math
from collections.abc import Mapping

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
    if not trajectory.stop_reason.is_policy:
        return Reward(None, False, {}, f"The episode ended with {trajectory.stop_reason.value}.")
    raw: dict[str, float | None] = {}
    problems: list[str] = []
    total = 0.0
    for term in scheme.terms:
        raw[term.kind] = None
        try:
            value = float(terms[term.kind](trajectory))
        except Exception as error:  # a broken grader must not teach: the reward is invalid
            problems.append(f"{term.kind} raised {type(error).__name__}: {error}")
            continue
        if not math.isfinite(value):
            problems.append(f"{term.kind} is {value}")
            continue
        raw[term.kind] = value
        total += term.weight * value
    if not problems and not math.isfinite(total):
        problems.append(f"the weighted sum is {total}")
    if problems:
        return Reward(None, False, raw, "; ".join(problems))
    return Reward(total, True, raw)
