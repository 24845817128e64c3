"""Evaluations: what one task came to, the `eval/...` metrics of all, and the gain between two."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.evaluation.intervals import paired_gain, wilson
from engine.records.trajectory import Trajectory


@dataclass(frozen=True)
class Outcome:
    """One task played once. `valid` is false where something but the policy ended it."""

    task_id: str
    category: str
    valid: bool
    success: bool
    calls: int
    failed_calls: int
    turns: int
    sampled_tokens: int


def outcome(trajectory: Trajectory) -> Outcome:
    calls = [step.call for step in trajectory.steps if step.call]
    return Outcome(
        task_id=trajectory.task_id,
        category=trajectory.category,
        valid=trajectory.stop_reason.is_policy,
        success=trajectory.success,
        calls=len(calls),
        failed_calls=sum(call.error is not None for call in calls),
        turns=len(trajectory.steps),
        sampled_tokens=trajectory.sampled_tokens,
    )


def metrics(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Rates over the tasks that the policy itself ended; what has no case is absent."""
    valid = [one for one in outcomes if one.valid]
    found = {"eval/tasks": float(len(valid))}
    if not valid:
        return found
    rate = wilson(sum(one.success for one in valid), len(valid))
    found["eval/completion_rate"] = rate.value
    found["eval/completion_rate_low"] = rate.lower
    found["eval/completion_rate_high"] = rate.upper
    found["eval/length"] = sum(one.sampled_tokens for one in valid) / len(valid)
    found["eval/turns"] = sum(one.turns for one in valid) / len(valid)
    if calls := sum(one.calls for one in valid):
        found["eval/tool_success"] = 1 - sum(one.failed_calls for one in valid) / calls
    return found


def gain(before: Sequence[Outcome], after: Sequence[Outcome]) -> dict[str, float]:
    """Difference of the completion rates on the same tasks, with its paired 95% interval."""
    first = {one.task_id: float(one.success) for one in before if one.valid}
    last = {one.task_id: float(one.success) for one in after if one.valid}
    both = sorted(first.keys() & last.keys())
    if not both:
        return {}
    found = paired_gain([first[task] for task in both], [last[task] for task in both])
    return {"gain": found.value, "gain_low": found.lower, "gain_high": found.upper}
