"""Group advantages: published numbers, and the groups that teach nothing."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.advantages import (
    advantages,
    group_centred,
    group_normalised,
    leave_one_out,
)
from engine.spec.algorithms import Advantage


def test_it_gives_the_golden_numbers() -> None:
    golden = [0.86602, -0.86602, -0.86602, 0.86602]
    assert group_normalised([1, 0, 0, 1]) == pytest.approx(golden, abs=1e-5)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=16))
def test_it_centres_and_scales_each_group(rewards: list[float]) -> None:
    values = group_normalised(rewards)
    if not any(values):
        return
    assert math.fsum(values) == pytest.approx(0, abs=1e-6)
    spread = statistics.stdev(rewards)
    assert statistics.stdev(values) == pytest.approx(spread / (spread + 1e-6))


@pytest.mark.parametrize(
    "rewards", [[1.0, 1.0, 1.0], [0.1] * 7, [0.0, 0.0], [0.7], [], [None, 1.0]]
)
def test_groups_without_a_difference_give_zeros(rewards: list[float | None]) -> None:
    assert group_normalised(rewards) == [0.0] * len(rewards)


def test_an_invalid_reward_moves_nobody() -> None:
    values = group_normalised([1.0, None, 0.0, None, 0.0, 1.0])
    assert values[1] == values[3] == 0.0
    assert [values[i] for i in (0, 2, 4, 5)] == group_normalised([1.0, 0.0, 0.0, 1.0])


def test_centring_gives_the_golden_numbers() -> None:
    assert group_centred([1, 0, 0, 1]) == [0.5, -0.5, -0.5, 0.5]


def test_leaving_one_out_gives_the_golden_numbers() -> None:
    assert leave_one_out([1, 0, 0, 1]) == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])


@given(st.lists(st.one_of(st.none(), st.floats(-5, 5)), min_size=1, max_size=9))
def test_leaving_one_out_compares_with_the_mean_of_the_others(rewards: list[float | None]) -> None:
    found = leave_one_out(rewards)
    for index, (reward, value) in enumerate(zip(rewards, found, strict=True)):
        others = [r for i, r in enumerate(rewards) if i != index and r is not None]
        if reward is None or not others:
            assert value == 0.0
        else:
            assert value == pytest.approx(reward - statistics.fmean(others), abs=1e-7)


def test_the_baseline_of_reinforce_pp_gives_the_golden_number() -> None:
    found = advantages("group_batch_whitened", [[1, 0, 0, 1]], [[3, 3, 3, 3]])
    assert found[0] == pytest.approx([0.95743, -0.95743, -0.95743, 0.95743], abs=1e-5)


@given(
    st.lists(
        st.lists(
            st.tuples(st.one_of(st.none(), st.floats(-2, 2)), st.integers(1, 5)),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_whitening_is_over_all_tokens_of_the_batch(
    groups: list[list[tuple[float | None, int]]],
) -> None:
    rewards = [[reward for reward, _ in group] for group in groups]
    lengths = [[length for _, length in group] for group in groups]
    found = advantages("batch_whitened", rewards, lengths)
    tokens = [
        value
        for group, values in zip(groups, found, strict=True)
        for (reward, length), value in zip(group, values, strict=True)
        if reward is not None
        for _ in range(length)
    ]
    if any(tokens):
        assert statistics.fmean(tokens) == pytest.approx(0, abs=1e-6)
        spread = statistics.stdev(
            reward
            for group in groups
            for reward, n in group
            if reward is not None
            for _ in range(n)
        )
        assert statistics.stdev(tokens) == pytest.approx(spread / (spread + 1e-6))
    assert all(
        value == 0.0
        for group, values in zip(groups, found, strict=True)
        for (reward, _), value in zip(group, values, strict=True)
        if reward is None
    )


@pytest.mark.parametrize("kind", ["batch_centred", "batch_whitened", "group_batch_whitened"])
@pytest.mark.parametrize(("reward", "tokens"), [(1.0, 1), (None, 3), (1.0, 0)])
def test_a_batch_of_one_token_or_of_none_teaches_nothing(
    kind: Advantage, reward: float | None, tokens: int
) -> None:
    assert advantages(kind, [[reward]], [[tokens]]) == [[0.0]]


def test_a_group_of_one_learns_from_the_rest_of_the_batch() -> None:
    found = advantages("batch_centred", [[1.0], [0.0], [None]], [[1], [3], [7]])
    assert found == [[0.75], [-0.25], [0.0]]
