"""Backtests against counting by hand and by brute force."""

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records.trajectory import Reward, Segment, StopReason, Trajectory
from engine.rewards import RewardCurriculum, RewardScheme, RewardTerm, backtest
from engine.rewards.backtest import Tally
from tests.engine.rewards.samples import step, trajectory

OLD, NEW = RewardScheme(name="old"), RewardScheme(name="new")
Case = tuple[str, float | None, float | None]  # group, old reward, new reward


def run(cases: list[Case]) -> Any:
    """A backtest whose grades are given beforehand."""
    trajectories = [
        Trajectory(
            id=str(index),
            task_id=f"task of {group}",
            group_id=group,
            category="1 hop",
            prompt="",
            answer="",
            segments=[Segment([], [], [], [])],
            steps=[],
            stop_reason=StopReason.ANSWERED,
            reward=Reward(None, False),
            success=False,
            worker="",
            started_at="",
            duration_s=0.0,
            sampled_tokens=0,
        )
        for index, (group, _, _) in enumerate(cases)
    ]

    def grade(scheme: RewardScheme, trajectory: Trajectory) -> Reward:
        value = cases[int(trajectory.id)][1 if scheme is OLD else 2]
        return Reward(value, value is not None)

    return backtest(OLD, NEW, trajectories, grade)


def test_it_counts_flips_silence_and_the_invalid() -> None:
    found = run(
        [
            ("a", 0.0, 2.0),  # a flips with the next
            ("a", 1.0, 1.0),
            ("b", 1.0, 1.0),  # silent under both
            ("b", 1.0, 1.0),
            ("c", 1.0, None),  # silent under the new one alone
            ("c", 0.0, 3.0),
            ("d", 1.0, 0.5),  # a group of one is no group
        ]
    )
    assert (found.flips, found.ordered_pairs) == (1, 1)
    assert (found.groups, found.silent_old, found.silent_new) == (3, 1, 2)
    assert (found.old.invalid, found.new.invalid) == (0, 1)
    assert [(c.trajectory_id, c.old, c.new) for c in found.gainers] == [("5", 0, 3), ("0", 0, 2)]
    assert [c.trajectory_id for c in found.losers] == ["6"]
    assert found.gainers[0].task_id == "task of c"


rewards = st.none() | st.integers(-3, 3).map(float) | st.floats(-1e6, 1e6)
cases = st.lists(st.tuples(st.sampled_from("abc"), rewards, rewards), max_size=25)


def order(one: float, other: float) -> int:
    """1 where the first is larger, -1 where it is smaller, 0 where rounding alone parts them."""
    if math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-7):
        return 0
    return 1 if one > other else -1


@given(cases)
def test_it_equals_brute_force(given_cases: list[Case]) -> None:
    found = run(given_cases)
    flips = ordered = 0
    for i, (group, old, new) in enumerate(given_cases):
        for group_2, old_2, new_2 in given_cases[:i]:
            if group == group_2 and None not in (old, new, old_2, new_2):
                assert old is not None and old_2 is not None and new is not None
                assert new_2 is not None
                old_order, new_order = order(old, old_2), order(new, new_2)
                ordered += old_order != 0
                flips += old_order * new_order < 0
    assert (found.flips, found.ordered_pairs) == (flips, ordered)
    for side, distribution in ((1, found.old), (2, found.new)):
        values = [v for case in given_cases if (v := case[side]) is not None]
        assert distribution.valid == len(values) == sum(distribution.counts)
        assert distribution.invalid == len(given_cases) - len(values)
        if values:
            assert distribution.mean == pytest.approx(statistics.fmean(values))
            assert distribution.deviation == pytest.approx(statistics.pstdev(values), abs=1e-6)
            assert (distribution.smallest, distribution.largest) == (min(values), max(values))
        for place, count in enumerate(distribution.counts):
            low, high = found.edges[place], found.edges[place + 1]
            last = place == len(distribution.counts) - 1
            assert count == sum(low <= v < high or (last and v == high) for v in values)


@given(cases)
def test_a_scheme_against_itself_changes_nothing(given_cases: list[Case]) -> None:
    found = run([(group, old, old) for group, old, _ in given_cases])
    assert found.flips == 0 and found.gainers == found.losers == []
    assert found.old == found.new and found.silent_old == found.silent_new


def test_rounding_is_no_difference() -> None:
    tenth = sum([0.1] * 3)  # 0.30000000000000004
    found = run([("a", 0.3, tenth), ("a", tenth, 0.3)])
    assert (found.flips, found.ordered_pairs, found.silent_old, found.silent_new) == (0, 0, 1, 1)
    assert found.gainers == found.losers == []


def test_a_curriculum_is_graded_where_its_ramp_ends() -> None:
    plan = RewardCurriculum(process=["format"], weight_max=0.25)
    terms = [RewardTerm(kind="exact_answer"), RewardTerm(kind="format")]
    later = RewardScheme(terms=terms, curriculum=plan)
    found = backtest(RewardScheme(), later, [trajectory(step(answer="Euro"))])
    assert (found.old.mean, found.new.mean) == (1.0, 1.25)


def test_nothing_to_grade_is_not_zero() -> None:
    found = run([])
    assert found.edges == [] and found.old.mean is None and found.old.counts == []


def test_who_waits_for_a_large_group_may_stop() -> None:
    tally = Tally()
    for index in range(50):
        tally.add(str(index), "task", "one group", Reward(float(index), True), Reward(0.0, True))
    calls = 0

    def look() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        tally.result(look)
