"""Credit for turns: hand-computed cases, and how it falls back to the trajectory's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.advantages import group_normalised
from engine.algorithms.turns import gigpo, rewards_to_go, turn_advantages


@given(st.lists(st.floats(-3, 3), max_size=8), st.floats(0, 1))
def test_the_reward_to_go_is_the_discounted_rest(rewards: list[float], gamma: float) -> None:
    expected = [
        sum(gamma**j * rewards[k + j] for j in range(len(rewards) - k)) for k in range(len(rewards))
    ]
    assert rewards_to_go(rewards, gamma) == pytest.approx(expected, abs=1e-9)


def test_turns_are_compared_with_the_same_turn_of_the_others() -> None:
    found = turn_advantages([[0.0, 1.0], [1.0], [0.0, 0.0]], scale=False)
    # to go: (1, 1), (1), (0, 0)
    assert found == [pytest.approx([1 / 3, 0.5]), pytest.approx([1 / 3]), [-2 / 3, -0.5]]


def test_a_turn_that_only_one_reached_gets_nothing() -> None:
    assert turn_advantages([[0.0, 5.0], [1.0]])[0][1] == 0.0


def test_gigpo_compares_turns_of_one_situation() -> None:
    outcomes = [1.0, 0.0]
    found = gigpo(
        outcomes, [[0.0, 1.0], [0.0, 0.0]], [["start", "x"], ["start", "y"]], gamma=1.0, scale=False
    )
    # episode +-.5; "start" returns 1 and 0 add +-.5; "x" and "y" have no peer
    assert found == [[1.0, 0.5], [-1.0, -0.5]]


def test_gigpo_compares_situations_met_twice_by_one_trajectory() -> None:
    found = gigpo([1.0, 1.0], [[0.0, 1.0], [1.0]], [["a", "a"], ["b"]], gamma=0.5, scale=False)
    assert found == [[-0.25, 0.25], [0.0]]


@given(st.lists(st.one_of(st.none(), st.floats(-2, 2)), min_size=1, max_size=6))
def test_gigpo_without_equal_situations_is_the_episode_advantage(
    outcomes: list[float | None],
) -> None:
    turns = [[0.3, 0.7]] * len(outcomes)
    anchors = [[(row, 0), (row, 1)] for row in range(len(outcomes))]
    found = gigpo(outcomes, turns, anchors)
    assert found == [[value] * 2 for value in group_normalised(outcomes)]


def test_gigpo_wants_a_situation_for_each_turn() -> None:
    with pytest.raises(ValueError, match="Trajectory 0 has 2 turns and 1 situations"):
        gigpo([1.0], [[0.0, 1.0]], [["a"]])
