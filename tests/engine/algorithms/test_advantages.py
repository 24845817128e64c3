"""Group advantages: published numbers, and the groups that teach nothing."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.advantages import group_normalised


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
