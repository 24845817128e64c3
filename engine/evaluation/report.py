"""What an evaluation says: completion, pass@k, tool calls, lengths and costs of all its trials."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from engine.evaluation.funnel import CallFunnel
from engine.evaluation.intervals import Interval, rate
from engine.evaluation.outcomes import Outcome, by_task
from engine.evaluation.pass_k import PassK, pass_curve
from engine.records.trajectory import StopReason


@dataclass(frozen=True)
class Lengths:
    """Means over trajectories."""

    trajectories: int
    turns: float
    sampled_tokens: float
    context_tokens: float
    tool_s: float


@dataclass(frozen=True)
class Report:
    """Rates are over the trials that the policy itself ended; the others are counted beside them.

    None stands where there was no case.
    """

    tasks: int  # with at least one valid trial
    trials: int  # played of a task, at most
    trajectories: int  # all of them, also invalid ones
    completion: Interval | None
    by_category: dict[str, Interval]
    passes: list[PassK]
    truncated: int  # trajectories that a budget ended
    timed_out: int  # trajectories that the clock ended
    infra_failed: int  # trajectories that anything else but the policy ended
    stop_reasons: dict[str, int]
    calls: CallFunnel
    format_error_rate: float | None  # over calls
    error_rate: Interval | None  # trajectories with any failed call
    solved: Lengths | None
    unsolved: Lengths | None
    tokens_per_solved: float | None  # sampled by all trajectories, for each that succeeded
    seconds_per_solved: float | None  # of episodes, many of which run at the same time

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def report(outcomes: Sequence[Outcome]) -> Report:
    """All trials of an evaluation as one report; without any, counts are 0 and rates None."""
    tasks = by_task(outcomes)
    valid = [one for trials in tasks.values() for one in trials]
    calls = sum((one.calls for one in valid), CallFunnel())
    played = Counter(one.task_id for one in outcomes)
    solved = sum(one.success for one in valid)
    timed_out = sum(one.stop_reason is StopReason.TIMED_OUT for one in outcomes)
    return Report(
        tasks=len(tasks),
        trials=max(played.values(), default=0),
        trajectories=len(outcomes),
        completion=rate(_successes(tasks)) if tasks else None,
        by_category=_by_category(tasks),
        passes=pass_curve(_successes(tasks)),
        truncated=sum(one.stop_reason.is_truncated for one in outcomes),
        timed_out=timed_out,
        infra_failed=len(outcomes) - len(valid) - timed_out,
        stop_reasons=dict(Counter(one.stop_reason.value for one in outcomes)),
        calls=calls,
        format_error_rate=calls.format_error_rate,
        error_rate=_error_rate(tasks),
        solved=_lengths([one for one in valid if one.success]),
        unsolved=_lengths([one for one in valid if not one.success]),
        tokens_per_solved=_each(sum(one.sampled_tokens for one in outcomes), solved),
        seconds_per_solved=_each(sum(one.seconds for one in outcomes), solved),
    )


def metrics(found: Report, prefix: str = "eval/") -> dict[str, float]:
    """The series of an evaluation; what has no case is absent."""
    values: dict[str, float | None] = {
        "tasks": float(found.tasks),
        "truncated": float(found.truncated),
        "timed_out": float(found.timed_out),
        "infra_failed": float(found.infra_failed),
        "format_error_rate": found.format_error_rate,
        "tokens_per_solved": found.tokens_per_solved,
        "seconds_per_solved": found.seconds_per_solved,
    }
    if done := found.completion:
        values |= {
            "completion_rate": done.value,
            "completion_rate_low": done.lower,
            "completion_rate_high": done.upper,
        }
    if found.error_rate:
        values["trajectory_error_rate"] = found.error_rate.value
    if found.calls.attempted:
        values["tool_success"] = found.calls.executed / found.calls.attempted
        values["useful_calls"] = found.calls.useful / found.calls.attempted
    values |= _length_metrics(found)
    if found.trials > 1 and found.passes:
        last = found.passes[-1]
        values |= {f"pass_at_{last.k}": last.at, f"pass_hat_{last.k}": last.hat}
    return {prefix + name: value for name, value in values.items() if value is not None}


def _length_metrics(found: Report) -> dict[str, float | None]:
    parts = {"solved": found.solved, "unsolved": found.unsolved}
    there = [one for one in parts.values() if one]
    count = sum(one.trajectories for one in there)
    values: dict[str, float | None] = {
        f"{name}_{part}": getattr(one, field)
        for part, one in parts.items()
        if one
        for name, field in (("length", "sampled_tokens"), ("turns", "turns"), ("tool_s", "tool_s"))
    }
    for name, field in (("length", "sampled_tokens"), ("turns", "turns")):
        values[name] = _each(sum(getattr(one, field) * one.trajectories for one in there), count)
    return values


def _successes(tasks: dict[str, list[Outcome]]) -> list[list[bool]]:
    return [[one.success for one in trials] for trials in tasks.values()]


def _by_category(tasks: dict[str, list[Outcome]]) -> dict[str, Interval]:
    categories: dict[str, dict[str, list[Outcome]]] = {}
    for task, trials in tasks.items():
        categories.setdefault(trials[0].category, {})[task] = trials
    return {name: rate(_successes(categories[name])) for name in sorted(categories)}


def _error_rate(tasks: dict[str, list[Outcome]]) -> Interval | None:
    if not tasks:
        return None
    failed = [[one.failed_calls > 0 for one in trials] for trials in tasks.values()]
    return rate(failed)


def _each(total: float, count: int) -> float | None:
    return total / count if count else None


def _lengths(outcomes: Sequence[Outcome]) -> Lengths | None:
    if not outcomes:
        return None
    return Lengths(
        trajectories=len(outcomes),
        turns=fmean(one.turns for one in outcomes),
        sampled_tokens=fmean(one.sampled_tokens for one in outcomes),
        context_tokens=fmean(one.context_tokens for one in outcomes),
        tool_s=fmean(one.tool_s for one in outcomes),
    )
