"""The evaluation report on small sets of trajectories made by hand."""

from engine.evaluation.report import evaluate
from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory


def trajectory(
    success: bool, stop: StopReason, errors: list[str | None], category: str = "3 hops"
) -> Trajectory:
    steps = [
        Step(i, 0, 2, 4, "", ToolCall(f"call_{i}", "lookup", {}, "", error, 0.5))
        for i, error in enumerate(errors)
    ]
    return Trajectory(
        id="t",
        task_id="t",
        group_id="g",
        category=category,
        prompt="",
        answer="",
        segments=[Segment([1] * 10, [True] * 10, [0.0] * 10, [0] * 10)],
        steps=steps,
        stop_reason=stop,
        reward=Reward(float(success), True),
        success=success,
        worker="w",
        started_at="",
        duration_s=1.0,
        sampled_tokens=7,
    )


def test_it_counts_calls_by_how_far_they_came() -> None:
    errors = [None, "invalid_json", "unknown_tool", "invalid_arguments", "unknown_entity", None]
    report = evaluate([trajectory(True, StopReason.ANSWERED, errors)])
    calls = report.calls
    assert (calls.attempted, calls.parseable, calls.known_tool) == (6, 5, 4)
    assert (calls.valid_arguments, calls.succeeded) == (3, 2)
    assert calls.format_error_rate == 0.5


def test_infrastructure_failures_are_counted_but_never_rated() -> None:
    report = evaluate(
        [
            trajectory(True, StopReason.ANSWERED, [None, None]),
            trajectory(False, StopReason.MAX_CALLS, [None] * 8, "4 hops"),
            trajectory(False, StopReason.INFRA_ERROR, []),
        ]
    )
    assert report.tasks == 3 and report.infra_failed == 1
    assert report.completion is not None and report.completion.value == 0.5
    assert {name: rate.value for name, rate in report.by_category.items()} == {
        "3 hops": 1.0,
        "4 hops": 0.0,
    }
    assert report.stop_reasons == {"answered": 1, "max_calls": 1, "infra_error": 1}
    assert report.lengths_solved is not None and report.lengths_unsolved is not None
    assert (report.lengths_solved.turns, report.lengths_unsolved.turns) == (2, 8)
    assert report.lengths_unsolved.tool_seconds == 4.0


def test_nothing_to_rate_gives_no_rate() -> None:
    report = evaluate([trajectory(False, StopReason.INFRA_ERROR, [])])
    assert report.completion is None and report.by_category == {}
    assert report.calls.format_error_rate is None
