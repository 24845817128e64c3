"""The reward curriculum: when process terms come in, how far, and when they are withdrawn."""

import json
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rewards import RewardCurriculum
from engine.rewards.curriculum import CurriculumState, Look, advance
from engine.rewards.moments import Moments

PLAN = RewardCurriculum(
    process=["format"], success_above=0.6, steady_steps=4, ramp_steps=5, weight_max=0.3
)


def look(
    success: float,
    process: float = 0.5,
    error: float = 0.02,
    correlation: float | None = 0.3,
    groups: int = 24,
) -> Look:
    return Look(groups, success, error, process, error, correlation)


def follow(
    looks: Iterable[Look], state: CurriculumState | None = None
) -> tuple[list[CurriculumState], list[str]]:
    state = state or CurriculumState.first(PLAN)
    states, said = [], []
    for one in looks:
        state, sentence = advance(PLAN, state, one)
        states.append(state)
        said += [sentence] if sentence else []
    return states, said


def ramped(looks: int) -> CurriculumState:
    """The state after the ramp began and this many more looks."""
    states, _ = follow([look(0.8)] * (PLAN.steady_steps + looks))
    return states[-1]


def test_a_steady_success_brings_the_process_terms_in_linearly() -> None:
    states, said = follow([look(0.8)] * 11)
    weights = [state.weight for state in states]
    assert weights[:4] == [0, 0, 0, 0]
    assert weights[4:] == pytest.approx([0.06, 0.12, 0.18, 0.24, 0.3, 0.3, 0.3])
    assert [state.phase for state in states] == ["outcome"] * 3 + ["ramp"] * 5 + ["full"] * 3
    assert "steady at 80.0% over 4 steps; format ramp in, up to a weight of 0.3" in said[0]
    assert "weigh 0.3" in said[1] and len(said) == 2


def test_a_success_below_the_threshold_brings_nothing_in() -> None:
    states, said = follow([look(0.55)] * 50)
    assert said == [] and {state.weight for state in states} == {0.0}


def test_a_success_that_still_rises_is_not_steady() -> None:
    states, said = follow(look(min(1.0, 0.6 + 0.04 * step)) for step in range(10))
    assert said == [] and states[-1].phase == "outcome"
    _, said = follow([look(1.0)] * 6, states[-1])
    assert said[0].startswith("Reward curriculum: success has been steady")


def test_noise_on_a_steady_success_does_not_hold_it_up() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        states, _ = follow(look(draw.gauss(0.8, 0.03), error=0.03) for _ in range(30))
        assert any(state.phase == "ramp" for state in states)


def test_noise_alone_seldom_withdraws_them() -> None:
    withdrawn = 0
    for seed in range(100):
        draw = random.Random(seed)
        looks = (look(draw.gauss(0.8, 0.03), draw.gauss(0.5, 0.03), error=0.03) for _ in range(80))
        withdrawn += any("withdrawn" in sentence for sentence in follow(looks)[1])
    assert withdrawn <= 5


def test_a_fall_of_success_withdraws_them_and_lowers_the_next_ramp() -> None:
    before = ramped(3)
    assert before.weight == pytest.approx(0.18)
    states, said = follow([look(0.6)] * 4, before)
    assert "success fell to 74.0% from a mean of 77.5%" in said[0] and "withdrawn" in said[0]
    at = next(index for index, one in enumerate(states) if one.phase == "outcome")
    harmful = states[at - 1].weight if at else before.weight
    assert states[at].phase == "outcome"
    assert states[at].ceiling == pytest.approx(harmful / 2)
    again, _ = follow([look(0.8)] * 40, states[at])
    assert again[-1].phase == "full"
    assert again[-1].weight == pytest.approx(harmful / 2)


def test_process_that_only_failures_collect_is_withdrawn() -> None:
    farming = (look(0.78, 0.5 + 0.1 * step, correlation=-0.6) for step in range(8))
    states, said = follow(farming, ramped(3))
    assert "rises while success does not" in said[0]
    assert next(one for one in states if one.phase == "outcome").weight == 0.0


def test_process_that_rises_beside_a_flat_success_waits() -> None:
    cheaper = (look(0.8, 0.5 + 0.1 * step, correlation=0.5) for step in range(8))
    states, said = follow(cheaper, ramped(0))
    assert states[2].weight == pytest.approx(0.18)
    assert {state.weight for state in states[3:]} == {states[3].weight}
    assert said == []


def test_process_may_rise_with_success() -> None:
    both = (look(0.8 + 0.02 * step, 0.5 + 0.1 * step) for step in range(8))
    states, _ = follow(both, ramped(0))
    assert states[-1].phase == "full"


looks = st.builds(
    look,
    success=st.floats(0, 1),
    process=st.floats(-5, 5),
    error=st.floats(0, 0.3),
    correlation=st.none() | st.floats(-1, 1),
    groups=st.integers(1, 50),
)


@given(st.lists(looks, max_size=60))
def test_whatever_it_sees_the_weight_stays_in_bounds_and_moves_by_one_step(
    seen: list[Look],
) -> None:
    states, said = follow(seen)
    changes = 0
    before = CurriculumState.first(PLAN)
    for state in states:
        assert 0 <= state.weight <= state.ceiling <= PLAN.weight_max
        step = state.weight - before.weight
        assert step <= PLAN.weight_max / PLAN.ramp_steps + 1e-12
        assert step >= 0 or state.weight == 0
        assert state.phase != "outcome" or state.weight == 0
        changes += state.phase != before.phase
        before = state
    assert len(said) == changes


@given(st.lists(looks, max_size=30), st.lists(looks, max_size=30))
def test_a_resumed_one_goes_on_as_if_nothing_had_happened(
    first: list[Look], rest: list[Look]
) -> None:
    whole, _ = follow([*first, *rest])
    halfway = follow(first)[0][-1] if first else CurriculumState.first(PLAN)
    stored = CurriculumState.from_dict(json.loads(json.dumps(halfway.to_dict())))
    assert stored == halfway
    resumed, _ = follow(rest, stored)
    assert resumed == whole[len(first) :]


def test_a_look_is_taken_over_groups() -> None:
    groups, pairs = Moments(), Moments()
    assert Look.of(groups, pairs) is None
    for solved in (1.0, 0.5, 0.0):
        groups.add(solved, 2 * solved)
        pairs.add(solved, 2 * solved)
    found = Look.of(groups, pairs)
    assert found is not None
    assert (found.groups, found.success, found.process) == (3, 0.5, 1.0)
    assert found.correlation == pytest.approx(1.0)
