"""`caravan bench plan`: public points and the trainer's own tensors beside the planner."""

from bench import plan
from bench._plan_tensors import activations, states


def test_every_explained_point_is_right_and_the_other_is_shown() -> None:
    total, *each = plan.points()
    assert total.value == 100
    assert total.passed
    assert "OpenRLHF 776" in total.setup
    assert len(each) == 15
    (unexplained,) = [one for one in each if "not settled" in one.setup]
    assert "Planner: fits" in unexplained.setup
    assert all("https://" in one.setup for one in each)


def test_a_wrong_verdict_would_lower_the_share() -> None:
    explained = [one for one in plan.judged() if one.point.explained]
    assert all(one.right for one in explained)
    assert not any(one.right for one in plan.judged() if not one.point.explained)


def test_micro_batches_of_scripts_are_shown_as_they_come_out() -> None:
    shares = [one.value for one in plan.micro_batches()]
    assert len(shares) == 4
    assert min(shares) < 1 < max(shares)  # wrong in both directions: nothing was fitted


def test_state_is_exact_and_activations_stay_within_the_plan() -> None:
    found = list(states())
    assert len(found) == 36
    assert all(one.held == one.planned for one in found)
    assert all(0.75 < share <= 1 for _, share in activations())
