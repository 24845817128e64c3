"""What an evaluation says about a set of trajectories: completion, tool calls, lengths."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from engine.evaluation.intervals import Interval, wilson
from engine.records.trajectory import Trajectory

MALFORMED = frozenset({"invalid_json", "not_an_object"})
SCHEMA_ERRORS = frozenset({"invalid_arguments"})


@dataclass(frozen=True)
class CallFunnel:
    """How far attempted tool calls came; each stage counts calls that passed those before."""

    attempted: int
    parseable: int
    known_tool: int
    valid_arguments: int
    succeeded: int

    @property
    def format_error_rate(self) -> float | None:
        """Calls that are no JSON, or break the tool's schema, over all; None without calls."""
        if not self.attempted:
            return None
        return 1 - self.valid_arguments / self.attempted


@dataclass(frozen=True)
class Lengths:
    """Means over trajectories."""

    trajectories: int
    turns: float
    sampled_tokens: float
    context_tokens: float
    tool_seconds: float


@dataclass(frozen=True)
class Report:
    """Rates are over trajectories with a valid outcome; the others are counted beside them."""

    tasks: int
    completion: Interval | None
    by_category: dict[str, Interval]
    infra_failed: int
    stop_reasons: dict[str, int]
    calls: CallFunnel
    lengths_solved: Lengths | None
    lengths_unsolved: Lengths | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(trajectories: Sequence[Trajectory]) -> Report:
    """The report on one trajectory per task."""
    valid = [one for one in trajectories if one.stop_reason.is_policy]
    categories = sorted({one.category for one in valid})
    return Report(
        tasks=len(trajectories),
        completion=_completion(valid),
        by_category={
            category: interval
            for category in categories
            if (interval := _completion([one for one in valid if one.category == category]))
        },
        infra_failed=len(trajectories) - len(valid),
        stop_reasons=dict(Counter(one.stop_reason.value for one in trajectories)),
        calls=call_funnel(valid),
        lengths_solved=_lengths([one for one in valid if one.success]),
        lengths_unsolved=_lengths([one for one in valid if not one.success]),
    )


def call_funnel(trajectories: Sequence[Trajectory]) -> CallFunnel:
    """Counts the calls of all trajectories by how far they came."""
    errors = [step.call.error for one in trajectories for step in one.steps if step.call]
    parseable = [error for error in errors if error not in MALFORMED]
    known = [error for error in parseable if error != "unknown_tool"]
    valid = [error for error in known if error not in SCHEMA_ERRORS]
    succeeded = sum(error is None for error in valid)
    return CallFunnel(len(errors), len(parseable), len(known), len(valid), succeeded)


def _completion(trajectories: Sequence[Trajectory]) -> Interval | None:
    if not trajectories:
        return None
    return wilson(sum(one.success for one in trajectories), len(trajectories))


def _lengths(trajectories: Sequence[Trajectory]) -> Lengths | None:
    if not trajectories:
        return None
    return Lengths(
        trajectories=len(trajectories),
        turns=fmean(len(one.steps) for one in trajectories),
        sampled_tokens=fmean(one.sampled_tokens for one in trajectories),
        context_tokens=fmean(max(len(s.ids) for s in one.segments) for one in trajectories),
        tool_seconds=fmean(
            sum(step.call.duration_s for step in one.steps if step.call) for one in trajectories
        ),
    )
