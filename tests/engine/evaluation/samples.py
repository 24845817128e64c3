"""Trajectories and outcomes made by hand."""

from dataclasses import replace

from engine.evaluation.funnel import CallFunnel
from engine.evaluation.outcomes import Outcome
from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory

SOLVED = Outcome(
    task_id="t",
    category="3 hops",
    trial=0,
    trajectory="x",
    stop_reason=StopReason.ANSWERED,
    valid=True,
    success=True,
    calls=CallFunnel(3, 3, 3, 3, 2, 2),
    turns=4,
    sampled_tokens=40,
    context_tokens=80,
    tool_s=0.5,
    seconds=2.0,
)
BROKEN = replace(SOLVED, valid=False, success=False, stop_reason=StopReason.INFRA_ERROR)


def outcomes(*successes: bool, trial: int = 0) -> list[Outcome]:
    """One trial of the tasks t0, t1, ..."""
    return [
        replace(
            SOLVED,
            task_id=f"t{index}",
            trial=trial,
            trajectory=f"x{index}-{trial}",
            success=success,
        )
        for index, success in enumerate(successes)
    ]


def call(result: str = "", error: str | None = None, name: str = "lookup") -> ToolCall:
    return ToolCall("call", name, {}, result, error, 0.5)


def trajectory(success: bool, stop: StopReason, calls: list[ToolCall]) -> Trajectory:
    return Trajectory(
        id="x",
        task_id="t",
        group_id="g",
        category="3 hops",
        prompt="",
        answer="",
        segments=[Segment([1] * 10, [True] * 10, [0.0] * 10, [0] * 10)],
        steps=[Step(i, 0, 2, 4, "", one) for i, one in enumerate(calls)],
        stop_reason=stop,
        reward=Reward(float(success), True),
        success=success,
        worker="w",
        started_at="",
        duration_s=1.0,
        sampled_tokens=7,
    )
