"""The evaluation report and its series on small sets of outcomes made by hand."""

from dataclasses import replace

import pytest

from engine.evaluation.funnel import CallFunnel
from engine.evaluation.intervals import wilson
from engine.evaluation.outcomes import Outcome, outcome
from engine.evaluation.report import metrics, report
from engine.records.trajectory import Segment, StopReason
from tests.engine.evaluation.samples import BROKEN, SOLVED, call, outcomes, trajectory


def test_it_counts_calls_by_how_far_they_came() -> None:
    calls = [
        call("Paris"),
        call(error="invalid_json"),
        call(error="unknown_tool"),
        call(error="invalid_arguments"),
        call(error="unknown_entity"),
        call("Euro"),
    ]
    found = outcome(trajectory(True, StopReason.ANSWERED, calls), 0)
    assert found.calls == CallFunnel(6, 5, 4, 3, 2, 2)
    assert found.failed_calls == 4
    assert found.calls.format_error_rate == 0.5


def test_a_call_is_useful_once_where_its_result_is_new_and_no_failure() -> None:
    calls = [call("Paris"), call("Paris"), call("slow", "timeout"), call("slow"), call("Euro")]
    found = outcome(trajectory(True, StopReason.ANSWERED, calls), 0)
    assert (found.calls.executed, found.calls.useful) == (4, 2)


def test_an_outcome_says_what_the_trajectory_says_and_survives_storage() -> None:
    found = outcome(trajectory(False, StopReason.MAX_TOKENS, [call("a"), call("b")]), 3)
    assert (found.trial, found.turns, found.tool_s, found.context_tokens) == (3, 2, 1.0, 10)
    assert found.valid and found.stop_reason is StopReason.MAX_TOKENS and not found.success
    assert Outcome.from_dict(found.to_dict()) == found
    with pytest.raises((KeyError, TypeError, ValueError)):
        Outcome.from_dict({"task_id": "t", "valid": True})


def test_the_context_is_that_of_the_longest_segment() -> None:
    played = trajectory(True, StopReason.ANSWERED, [])
    short, long = Segment([1] * 4, [True] * 4, [0.0] * 4, [0] * 4), played.segments[0]
    played.segments = [short, long, short]
    assert outcome(played, 0).context_tokens == len(long.ids)


def test_what_the_machine_broke_counts_neither_way_and_is_counted_beside() -> None:
    found = report([*outcomes(True, False), BROKEN])
    assert found.completion is not None and found.completion.value == 0.5
    assert (found.tasks, found.trajectories, found.infra_failed) == (2, 3, 1)
    assert found.stop_reasons == {"answered": 2, "infra_error": 1}
    nothing = report([BROKEN])
    assert nothing.completion is None and nothing.passes == [] and nothing.solved is None
    assert nothing.error_rate is None and nothing.tokens_per_solved is None
    assert metrics(nothing) == {
        "eval/tasks": 0.0,
        "eval/truncated": 0.0,
        "eval/timed_out": 0.0,
        "eval/infra_failed": 1.0,
    }


def test_budgets_the_clock_and_broken_machines_are_told_apart() -> None:
    cut = replace(SOLVED, task_id="cut", success=False, stop_reason=StopReason.MAX_TOKENS)
    slow = replace(BROKEN, task_id="slow", stop_reason=StopReason.TIMED_OUT)
    found = report([SOLVED, cut, slow, BROKEN])
    assert (found.truncated, found.timed_out, found.infra_failed) == (1, 1, 1)


def test_lengths_and_costs_are_split_by_success() -> None:
    failed = replace(SOLVED, task_id="long", success=False, turns=8, sampled_tokens=160, tool_s=4.0)
    found = report([SOLVED, failed])
    assert found.solved is not None and found.unsolved is not None
    assert (found.solved.turns, found.unsolved.turns, found.unsolved.tool_s) == (4, 8, 4.0)
    assert found.tokens_per_solved == 200, "failures cost too"
    assert found.seconds_per_solved == 4
    series = metrics(found)
    assert (series["eval/length"], series["eval/length_unsolved"]) == (100, 160)
    assert report([failed]).tokens_per_solved is None


def test_one_trial_has_wilsons_interval_per_category_too() -> None:
    other = [replace(one, task_id=f"o{one.task_id}", category="4 hops") for one in outcomes(False)]
    found = report([*outcomes(*[True] * 8, *[False] * 2), *other])
    assert found.by_category == {"3 hops": wilson(8, 10), "4 hops": wilson(0, 1)}
    assert found.completion == wilson(8, 11)
    assert "eval/pass_at_1" not in metrics(found)


def test_several_trials_give_the_mean_over_tasks_and_both_curves() -> None:
    played = [
        *outcomes(True, True, False),
        *outcomes(True, False, False, trial=1),
        replace(BROKEN, task_id="t2", trial=2),
    ]
    found = report(played)
    assert (found.tasks, found.trials, found.trajectories) == (3, 3, 7)
    assert found.completion is not None and found.completion.value == 0.5
    assert [(one.k, one.tasks) for one in found.passes] == [(1, 3), (2, 3)]
    series = metrics(found, "evaluate/")
    assert series["evaluate/pass_at_2"] == pytest.approx(2 / 3)
    assert series["evaluate/pass_hat_2"] == pytest.approx(1 / 3)


def test_the_curves_are_told_at_the_most_trials() -> None:
    played = [one for trial in range(4) for one in outcomes(True, trial == 0, trial=trial)]
    series = metrics(report(played))
    assert series["eval/pass_at_4"] == 1.0
    assert series["eval/pass_hat_4"] == 0.5
    assert not {"eval/pass_at_1", "eval/pass_at_2"} & series.keys()


def test_the_error_rate_is_over_trajectories_not_calls() -> None:
    clean = replace(SOLVED, task_id="clean", calls=CallFunnel(1, 1, 1, 1, 1, 1))
    messy = replace(SOLVED, task_id="messy", calls=CallFunnel(9, 1, 1, 1, 1, 1))
    found = report([clean, messy])
    assert found.error_rate == wilson(1, 2)
    assert found.calls == CallFunnel(10, 2, 2, 2, 2, 2)
    assert found.format_error_rate == 0.8
    assert metrics(found)["eval/tool_success"] == 0.2
