"""What is told of rollouts is what their trajectories say."""

import pytest

from engine.records.trajectory import Step, StopReason, ToolCall
from tests.engine.pool.samples import trajectory
from workers.cluster.rollout_stats import Window, tally


def with_calls(*errors: str | None, reward: float | None = 1.0):
    one = trajectory(reward=reward)
    for index, error in enumerate(errors):
        call = ToolCall(f"c{index}", "lookup", {}, "", error, 0.01)
        one.steps.append(Step(index, 0, 0, 1, "", call))
    return one


def test_it_tells_rates_over_what_there_was():
    window = Window(since=100.0)
    window.gathered.add(tally([with_calls(None, "unknown", reward=1.0), with_calls(reward=0.0)]))
    window.gathered.add(tally([trajectory(reward=1.0), trajectory(reward=1.0)]))
    found = window.drain(now=102.0)
    assert found == pytest.approx(
        {
            "rollout/reward_mean": 0.75,
            "rollout/success": 0.75,
            "rollout/tool_success": 0.5,
            "rollout/length": 2.0,
            "rollout/turns": 0.5,
            "rollout/zero_variance_groups": 0.5,
            "rollout/trajectories_per_s": 2.0,
            "rollout/tokens_per_s": 4.0,
        }
    )


def test_what_had_no_case_is_absent_and_not_zero():
    window = Window(since=0.0)
    assert window.drain(now=1.0) == {}
    window.gathered.add(tally([trajectory(reward=None), trajectory(reward=None)]))
    found = window.drain(now=2.0)
    assert "rollout/reward_mean" not in found
    assert "rollout/tool_success" not in found
    assert found["rollout/length"] == 2.0


def test_an_episode_that_broke_under_the_policy_counts_for_no_rate():
    broken = trajectory(reward=1.0, stop_reason=StopReason.INFRA_ERROR)
    found = tally([trajectory(reward=0.0), broken])
    assert (found.valid, found.successes, found.trajectories) == (1, 0, 2)


def test_each_window_starts_anew():
    window = Window(since=0.0)
    window.gathered.add(tally([trajectory()]))
    window.drain(now=1.0)
    assert window.drain(now=2.0) == {}
