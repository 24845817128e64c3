"""Rates over what the policy itself ended, and the gain on the same tasks."""

import dataclasses

import pytest

from workers.cluster.evaluation import Outcome, gain, metrics

SOLVED = Outcome("t", "3 hops", True, True, calls=3, failed_calls=1, turns=4, sampled_tokens=40)


def outcomes(*successes: bool) -> list[Outcome]:
    return [
        dataclasses.replace(SOLVED, task_id=f"t{index}", success=success)
        for index, success in enumerate(successes)
    ]


def test_it_tells_the_rate_with_wilsons_interval():
    found = metrics(outcomes(*[True] * 8, *[False] * 2))
    assert found["eval/completion_rate"] == 0.8
    # Wilson's interval of 8 of 10, from published tables
    assert found["eval/completion_rate_low"] == pytest.approx(0.4902, abs=1e-4)
    assert found["eval/completion_rate_high"] == pytest.approx(0.9433, abs=1e-4)
    assert found["eval/tool_success"] == pytest.approx(2 / 3)
    assert (found["eval/length"], found["eval/turns"], found["eval/tasks"]) == (40, 4, 10)


def test_what_the_machine_broke_counts_neither_way():
    broken = dataclasses.replace(SOLVED, valid=False, success=False)
    assert metrics([*outcomes(True, True), broken])["eval/completion_rate"] == 1.0
    assert metrics([broken]) == {"eval/tasks": 0.0}


def test_the_gain_is_paired_by_task():
    before = outcomes(True, False, False, False)
    after = outcomes(True, True, True, False)
    found = gain(before, list(reversed(after)))
    assert found["gain"] == 0.5
    assert found["gain_low"] <= 0.5 <= found["gain_high"]


def test_there_is_no_gain_without_common_tasks():
    other = [dataclasses.replace(SOLVED, task_id="elsewhere")]
    assert gain(outcomes(True), other) == {}
