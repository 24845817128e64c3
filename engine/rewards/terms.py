"""The terms of a reward: small pure functions of a trajectory. Any may raise on odd data."""

from collections.abc import Callable

from engine.records.trajectory import StopReason, Trajectory
from engine.rewards.scheme import TermKind

Term = Callable[[Trajectory], float]


def exact_answer(trajectory: Trajectory) -> float:
    """1 where the episode ended with exactly the right answer, else 0."""
    if trajectory.stop_reason is not StopReason.ANSWERED:
        return 0.0
    return float(trajectory.steps[-1].answer == trajectory.answer)


def format_share(trajectory: Trajectory) -> float:
    """Share of the turns that were a well-formed call or answer, 0 to 1."""
    turns = [step for step in trajectory.steps if not step.detour]
    if not turns:
        return 0.0
    malformed = {"invalid_json", "not_an_object", "unknown_tool", "invalid_arguments"}
    formed = [
        step.answer is not None or (step.call is not None and step.call.error not in malformed)
        for step in turns
    ]
    return sum(formed) / len(turns)


def length(trajectory: Trajectory) -> float:
    """Sampled tokens, in hundreds; give it a negative weight to prefer short trajectories."""
    return trajectory.sampled_tokens / 100


def tool_errors(trajectory: Trajectory) -> float:
    """Share of the tool calls that failed, 0 to 1; give it a negative weight."""
    calls = [step.call for step in trajectory.steps if step.call and not step.detour]
    if not calls:
        return 0.0
    return sum(call.error is not None for call in calls) / len(calls)


TERMS: dict[TermKind, Term] = {
    "exact_answer": exact_answer,
    "format": format_share,
    "length": length,
    "tool_errors": tool_errors,
}
