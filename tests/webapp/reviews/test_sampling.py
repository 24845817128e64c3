"""Which trajectories a queue takes: both sides of groups that disagree, outliers, new failures."""

import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.evaluation.samples import outcomes
from tests.webapp.judging import judge
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import start
from webapp.monitoring.models import TrialPart
from webapp.problems import RefusedError
from webapp.reviews import services
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric
from webapp.reviews.sampling import (
    OUTLIER_Z,
    Pick,
    Row,
    disagreeing,
    outliers,
    paired,
    pick,
    robust_z,
)


def rows_of(groups: dict[str, list[tuple[bool, float]]]) -> list[Row]:
    return [
        Row(f"{group}{n}", group, f"task-{group}", "2 hops", reward, success)
        for group, members in groups.items()
        for n, (success, reward) in enumerate(members)
    ]


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), max_size=6), st.integers(0, 9))
def test_it_takes_one_of_each_side_of_groups_that_disagree(groups, seed):
    rows = rows_of({f"g{i}-": [(s, 0.0) for s in members] for i, members in enumerate(groups)})
    success = {row.id: row.success for row in rows}
    group = {row.id: row.group for row in rows}
    picks = disagreeing(rows, {}, random.Random(seed))
    assert len({one.trajectory for one in picks}) == len(picks)
    for one, two in zip(picks[::2], picks[1::2], strict=True):
        assert group[one.trajectory] == group[two.trajectory]
        assert success[one.trajectory] != success[two.trajectory]
    taken = {name: sum(group[p.trajectory] == name for p in picks) for name in set(group.values())}
    for i, members in enumerate(groups):
        assert taken[f"g{i}-"] == 2 * min(sum(members), len(members) - sum(members))


def test_it_takes_every_group_before_a_second_pair_of_one():
    mixed = [(True, 1.0), (True, 1.0), (False, 0.0), (False, 0.0)]
    picks = disagreeing(rows_of({"a": mixed, "b": mixed}), {}, random.Random(0))
    assert [one.trajectory[0] for one in picks] == list("aabbaabb")


def test_a_label_that_contradicts_the_reward_is_a_disagreement_too():
    rows = rows_of({"a": [(True, 1.0), (True, 1.0)], "b": [(False, 0.0), (False, 0.0)]})
    picks = disagreeing(rows, {"a1": False, "b0": False}, random.Random(0))
    assert {one.trajectory for one in picks} == {"a0", "a1"}
    assert picks[0].reason == {"kind": "labels", "contradicted": 1, "members": 2}


@given(
    st.lists(
        st.sampled_from([0.0, 1.0]) | st.floats(-1e6, 1e6) | st.floats(0, 0.1),
        min_size=20,
        max_size=90,
    )
)
def test_at_most_a_twentieth_on_each_side_is_an_outlier_whatever_the_shape(values):
    scores = robust_z(values)
    assert sum(z >= OUTLIER_Z for z in scores) <= len(values) / 20
    assert sum(z <= -OUTLIER_Z for z in scores) <= len(values) / 20
    middle = statistics.median(values)
    for value, z in zip(values, scores, strict=True):
        assert (z > 0) <= (value > middle) and (z < 0) <= (value < middle)


def test_robust_z_of_a_normal_sample_is_its_z():
    rng = random.Random(0)
    values = [rng.gauss(5, 2) for _ in range(20_000)]
    for value, z in list(zip(values, robust_z(values), strict=True))[:50]:
        assert z == pytest.approx((value - 5) / 2, abs=0.1)
    assert robust_z([5, 5, 5]) == [0, 0, 0]
    # 19 and one of 20 equal: the mean absolute deviation is 4 / 20.
    assert robust_z([1.0] * 19 + [5.0])[-1] > OUTLIER_Z
    assert robust_z([1.0] * 39 + [5.0])[-1] == pytest.approx(4 / (1.253314 * 4 / 40))


def peaks(rng, n, solved_share, noise=0.01):
    """Rewards of 1 for the solved and 0 for the others, each with a little noise."""
    members = [(rng.random() < solved_share, rng.gauss(0, noise)) for _ in range(n)]
    return [(solved, solved + by) for solved, by in members]


@pytest.mark.parametrize("solved", [0.05, 0.3, 0.45, 0.5, 0.9])
def test_no_peak_of_a_reward_of_two_is_an_outlier(solved):
    rng = random.Random(1)
    noisy, plain = peaks(rng, 400, solved), peaks(rng, 400, solved, noise=0)
    assert len(outliers(rows_of({"a": noisy}))) <= 4  # of 400 normal ones 0.2 lie beyond 3.5
    assert outliers(rows_of({"a": plain})) == []


def test_a_failure_that_is_paid_like_a_solved_one_is_found_the_farthest_first():
    rng = random.Random(2)
    rows = rows_of({"a": [*peaks(rng, 400, 0.5), (False, 1.0), (True, 9.0)]})
    first, second = outliers(rows)[:2]
    assert (first.trajectory, second.trajectory) == ("a401", "a400")
    assert first.reason["solved"] is True and second.reason["solved"] is False
    assert first.reason["z"] > second.reason["z"] > 50


def test_a_second_peak_among_the_failed_is_none_of_outliers():
    members = [(False, 0.0)] * 60 + [(False, 0.4)] * 40
    assert outliers(rows_of({"a": members})) == []


def test_few_peers_and_rewards_that_are_missing_say_nothing():
    assert outliers(rows_of({"a": [(True, 1.0)] * 18 + [(True, 9.0)]})) == []
    unscored = [(True, None)] * 30
    assert outliers(rows_of({"a": [*unscored, (True, 9.0)]})) == []


def test_trajectories_of_no_group_are_not_one_group():
    rows = [row._replace(group="") for row in rows_of({"a": [(True, 1.0), (False, 0.0)]})]
    assert disagreeing(rows, {}, random.Random(0)) == []
    assert list(paired([Pick(row.id) for row in rows], rows, random.Random(0))) == []


def test_it_pairs_each_trajectory_once_with_one_of_the_other_outcome():
    rows = rows_of({"a": [(True, 1.0), (True, 1.0), (False, 0.0)], "b": [(True, 1.0)]})
    picks = disagreeing(rows, {}, random.Random(0))
    (both,) = paired(picks, rows, random.Random(0))
    assert {both.trajectory, both.other} == {"a0", "a2"}


def test_the_order_of_two_says_nothing():
    rows = rows_of({f"g{i}-": [(True, 1.0), (False, 0.0)] for i in range(200)})
    picks = disagreeing(rows, {}, random.Random(1))
    first = sum(one.trajectory.endswith("-0") for one in paired(picks, rows, random.Random(2)))
    assert 70 < first < 130  # 14 standard deviations are not; 4 are 28


def test_a_preview_shows_what_will_be_made(run, store, owner):
    store([trajectory(name=f"t{i}", success=i % 2 == 0) for i in range(9)])
    found = services.preview(run, Filter(), "random", 4, style="single", seed=7)
    queue = services.create_queue(
        run, owner, name="Q", rubric=Rubric(), wanted=Filter(), size=4, sample="random", seed=7
    )
    made = list(queue.items.order_by("position").values_list("trajectory", flat=True))
    assert made == [one.trajectory for one in found.picks]
    assert (found.matching, found.found) == (9, 9)


def test_an_odd_size_leaves_no_side_of_a_group_alone(run, store):
    store([trajectory(name=f"t{i}", group=f"g{i // 2}", success=i % 2 == 0) for i in range(6)])
    assert len(pick(run, Filter(), "disagreement", 3).picks) == 2


def evaluated(run, driver, step, at, said):
    """An evaluation whose tasks came out as `said`: {task: [success of each trial]}."""
    played = [
        replace(
            outcome, task_id=task, trial=n, trajectory=f"{run.pk[-4:]}-{step}-{task}-{n}"
        )
        for task, trials in said.items()
        for n, success in enumerate(trials)
        for outcome in outcomes(success)
    ]  # fmt: skip
    judge(driver.attempt, played, step, seq=10**9 + step, at=at)
    return played


@pytest.fixture
def driver(run):
    return start(run)


def stored(store, played):
    store(
        [trajectory(name=one.trajectory, task=one.task_id, success=one.success) for one in played]
    )


def test_newly_failing_is_what_an_earlier_evaluation_solved(run, driver, store):
    evaluated(run, driver, 10, 1.0, {"a": [True], "b": [True], "c": [False]})
    now = evaluated(run, driver, 20, 2.0, {"a": [False], "b": [True], "c": [False]})
    stored(store, now)
    (found,) = pick(run, Filter(), "newly_failing", 10).picks
    assert found.trajectory == f"{run.pk[-4:]}-20-a-0"
    assert found.reason["step"] == 10 and found.reason["trajectory"].endswith("-10-a-0")


def test_newly_failing_is_what_the_baseline_solved(run, driver, store, launch):
    baseline = launch()
    evaluated(baseline, start(baseline), 30, 1.0, {"c": [True], "d": [False]})
    run.experiment.baseline = baseline
    run.experiment.save()
    now = evaluated(run, driver, 20, 2.0, {"c": [False], "d": [False]})
    stored(store, now)
    (found,) = pick(run, Filter(), "newly_failing", 10).picks
    assert found.reason["run"] == baseline.pk and found.trajectory.endswith("-20-c-0")


def test_a_task_counts_as_solved_where_half_of_its_trials_are(run, driver, store):
    evaluated(run, driver, 10, 1.0, {"a": [True, False], "b": [True, False, False]})
    now = evaluated(run, driver, 20, 2.0, {"a": [False, False], "b": [False, False, False]})
    stored(store, now)
    found = pick(run, Filter(), "newly_failing", 10).picks
    assert {one.trajectory for one in found} == {f"{run.pk[-4:]}-20-a-{n}" for n in (0, 1)}


def test_an_evaluation_whose_trials_were_not_reported_says_nothing(run, driver, store):
    evaluated(run, driver, 10, 1.0, {"a": [True]})
    now = evaluated(run, driver, 20, 2.0, {"a": [False]})
    stored(store, now)
    TrialPart.objects.filter(path__contains="step-000010").delete()
    assert pick(run, Filter(), "newly_failing", 10).picks == []


def test_a_run_without_evaluations_is_told(run, store):
    store([trajectory()])
    with pytest.raises(RefusedError, match="no evaluation"):
        pick(run, Filter(), "newly_failing", 10)
