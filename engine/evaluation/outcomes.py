"""What one trial of a task came to: the record that reports and comparisons are made from."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine.evaluation.funnel import CallFunnel, call_funnel
from engine.records.trajectory import StopReason, Trajectory


@dataclass(frozen=True)
class Outcome:
    """One trial. `valid` is false where something but the policy ended it."""

    task_id: str
    category: str
    trial: int  # from 0
    trajectory: str  # its id
    stop_reason: StopReason
    valid: bool
    success: bool
    calls: CallFunnel
    turns: int
    sampled_tokens: int
    context_tokens: int  # the longest context
    tool_s: float
    seconds: float  # of the episode; many run at the same time

    @property
    def failed_calls(self) -> int:
        return self.calls.attempted - self.calls.executed

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Outcome":
        """The inverse of `to_dict`. Raises KeyError, TypeError or ValueError on
        foreign data."""
        parts = {
            "calls": CallFunnel(**data["calls"]),
            "stop_reason": StopReason(data["stop_reason"]),
        }
        return Outcome(**{**data, **parts})


def outcome(trajectory: Trajectory, trial: int) -> Outcome:
    """What a trajectory came to as a trial of its task; `trial` counts those from 0."""
    calls = [step.call for step in trajectory.steps if step.call]
    return Outcome(
        task_id=trajectory.task_id,
        category=trajectory.category,
        trial=trial,
        trajectory=trajectory.id,
        stop_reason=trajectory.stop_reason,
        valid=trajectory.stop_reason.is_policy,
        success=trajectory.success,
        calls=call_funnel(calls),
        turns=len(trajectory.steps),
        sampled_tokens=trajectory.sampled_tokens,
        context_tokens=max(len(segment.ids) for segment in trajectory.segments),
        tool_s=sum(call.duration_s for call in calls),
        seconds=trajectory.duration_s,
    )


def by_task(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The valid trials of each task that has one, in the order of the trials."""
    found: dict[str, list[Outcome]] = {}
    for one in sorted(outcomes, key=lambda one: (one.task_id, one.trial)):
        if one.valid:
            found.setdefault(one.task_id, []).append(one)
    return found
