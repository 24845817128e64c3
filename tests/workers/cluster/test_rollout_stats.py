"""What is told of rollouts is what their trajectories say."""

import pytest

from engine.records.trajectory import Reward, Step, StopReason, ToolCall
from tests.engine.pool.samples import trajectory
from workers.cluster.rollout_stats import Tally, Window, tally


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
            "rollout/out_of_tokens": 0.0,
            "rollout/out_of_calls": 0.0,
            "rollout/timed_out": 0.0,
            "rollout/broken": 0.0,
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


def test_it_tells_the_ways_apart_in_which_episodes_are_cut_short():
    ends = [
        StopReason.MAX_TOKENS,
        StopReason.MAX_TURN_TOKENS,
        StopReason.MAX_CALLS,
        StopReason.TIMED_OUT,
        StopReason.INFRA_ERROR,
        StopReason.ANSWERED,
        StopReason.REPEATED_CALL,
        StopReason.INVALID_CALLS,
    ]
    window = Window(since=0.0)
    window.gathered.add(tally([trajectory(reward=0.0, stop_reason=end) for end in ends]))
    found = window.drain(now=1.0)
    shares = {"out_of_tokens": 2, "out_of_calls": 1, "timed_out": 1, "broken": 1}
    for name, count in shares.items():
        assert found[f"rollout/{name}"] == count / 8
    assert tally([trajectory(stop_reason=end) for end in ends]).valid == 6


def test_rewards_that_rounding_parts_are_flat():
    assert tally([trajectory(reward=0.1 + 0.2), trajectory(reward=0.3)]).flat_groups == 1
    assert tally([trajectory(reward=None)]).flat_groups == 0


def graded(outcome: float, process: float, **terms: float):
    one = trajectory(reward=outcome)
    one.success = outcome > 0
    one.reward = Reward(outcome, True, terms, process_weight=0.1, outcome=outcome, process=process)
    return one


def test_terms_and_their_pairs_add_up_over_groups():
    sums = Tally()
    sums.add(tally([graded(1.0, 0.5, format=0.5), graded(0.0, 0.1, format=0.1, overlong=-0.5)]))
    sums.add(tally([graded(1.0, 0.3, format=0.3, overlong=0.0), trajectory(reward=None)]))
    assert sums.terms["format"].x == pytest.approx(0.3)
    assert (sums.terms["overlong"].count, sums.terms["overlong"].x) == (2, -0.25)
    assert sums.overlong == 1
    assert (sums.by_trajectory.count, sums.by_trajectory.x) == (3, pytest.approx(2 / 3))
    assert (sums.by_group.count, sums.by_group.x) == (2, 0.75)
    assert sums.by_group.y == pytest.approx(0.3)


def test_each_window_starts_anew():
    window = Window(since=0.0)
    window.gathered.add(tally([trajectory()]))
    window.drain(now=1.0)
    assert window.drain(now=2.0) == {}
