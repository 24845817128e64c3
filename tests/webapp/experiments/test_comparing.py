"""Runs beside each other: rates and their differences, tasks that flip, groups; API and page."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engine.evaluation.intervals import difference, wilson
from engine.evaluation.outcomes import Outcome
from engine.records.shards import write_shard
from tests.engine.evaluation.samples import outcomes
from tests.webapp import judging
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api
from webapp import storage
from webapp.accounts.models import Project, User
from webapp.experiments import comparing, services
from webapp.experiments.models import Run
from webapp.monitoring.models import RunEvent, Series
from webapp.reviews.models import Trajectory

Launcher = Callable[..., Run]
SOLVED = [True] * 6 + [False] * 4


@pytest.fixture
def page(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def judge(run: Run, played: Sequence[Outcome], at: int = 1, **fields: Any) -> RunEvent:
    return judging.judge(run.attempts.get(), played, at, **fields)


def test_the_same_tasks_are_paired(launch: Launcher) -> None:
    base, better = launch(), launch()
    judge(base, outcomes(*SOLVED))
    judge(better, outcomes(*[True] * 9, False))
    first, second = comparing.against_base(comparing.rates([base, better]))
    assert first is None and second is not None
    assert (second.method, second.tasks, second.left_out) == ("paired", 10, 0)
    assert (second.gained, second.lost) == (3, 0)
    assert second.interval.value == pytest.approx(0.3)
    assert second.p == pytest.approx(2 * 0.5**3)  # of three that differ, all one way


def test_other_tasks_are_not_paired_though_some_ids_are_the_same(launch: Launcher) -> None:
    base, other = launch(seed=1), launch(seed=2)
    judge(base, outcomes(*SOLVED))
    judge(other, [*outcomes(*SOLVED)[:9], replace(outcomes(True)[0], task_id="elsewhere")])
    found = comparing.against_base(comparing.rates([base, other]))[1]
    assert found is not None and found.method == "independent" and found.p is None
    wanted = difference(wilson(7, 10), wilson(6, 10))
    assert (found.interval.lower, found.interval.upper) == pytest.approx(
        (wanted.lower, wanted.upper)
    )


def test_of_one_world_only_the_tasks_of_both_count(launch: Launcher) -> None:
    base, other = launch(), launch()
    judge(base, outcomes(*SOLVED))
    judge(other, outcomes(*SOLVED[:8]))
    found = comparing.against_base(comparing.rates([base, other]))[1]
    assert found is not None and (found.method, found.tasks, found.left_out) == ("paired", 8, 2)


def test_it_says_when_they_were_played_differently(launch: Launcher) -> None:
    base, other = launch(), launch()
    judge(base, outcomes(*SOLVED))
    judge(other, outcomes(*SOLVED), temperature=1.0)
    found = comparing.against_base(comparing.rates([base, other]))[1]
    assert found is not None and not found.played_alike


def test_trials_that_were_not_reported_leave_independent_samples(launch: Launcher) -> None:
    base, other = launch(), launch()
    judge(base, outcomes(*SOLVED))
    judge(other, outcomes(*SOLVED), parts=2)
    found = comparing.against_base(comparing.rates([base, other]))[1]
    assert found is not None and found.method == "independent"


def test_the_newest_on_held_out_tasks_counts(launch: Launcher) -> None:
    run = launch()
    judge(run, outcomes(*SOLVED), at=1)
    judge(run, outcomes(True, True), at=2)
    judge(run, outcomes(False), at=3, tasks="quick")
    assert comparing.rates([run])[0].value == 1.0
    quick = launch()
    judge(quick, outcomes(False), at=1, tasks="quick")
    assert comparing.rates([quick])[0].value == 0.0


def logged(run: Run, **values: float) -> Run:
    for name, value in values.items():
        Series.objects.create(
            run=run, attempt=run.attempts.get(), name=f"eval/{name}", axis="trainer_step",
            last_step=1, last_value=value,
        )  # fmt: skip
    return run


def test_a_trainer_of_ones_own_logs_its_rate(project: Project, owner: User) -> None:
    begun = [
        services.begin_external(project, owner, {}, services.Launch(name=f"own {n}")).run
        for n in range(3)
    ]
    told = logged(begun[0], completion_rate=0.5, completion_rate_low=0.4, completion_rate_high=0.6)
    counted = logged(begun[1], completion_rate=0.25, tasks=40)
    bare = logged(begun[2], completion_rate=0.5)
    rates = comparing.rates([told, counted, bare])
    assert [one.value for one in rates] == [0.5, 0.25, 0.5]
    assert rates[0].interval is not None and rates[0].interval.upper == 0.6
    assert rates[1].interval == wilson(10, 40)
    assert rates[2].interval is None
    assert comparing.against_base(rates)[2] is None


def test_a_rate_beyond_0_and_1_has_no_interval(api: Api, launch: Launcher) -> None:
    base = logged(launch(), completion_rate=0.5, tasks=40)
    runs = [
        base,
        logged(launch(), completion_rate=1e300, tasks=40),
        logged(launch(), completion_rate=0.5, completion_rate_low=-1.7e308, completion_rate_high=1),
        logged(launch(), completion_rate=0.5, completion_rate_low=0.6, completion_rate_high=0.7),
        logged(launch(), completion_rate=0.5, tasks=-5),
        logged(launch(), completion_rate=0.5, tasks=1e300),
    ]
    assert [one.interval for one in comparing.rates(runs)[1:]] == [None] * 5
    ids = ",".join(run.pk for run in runs)
    assert api("GET", f"compare/completion?runs={ids}&group=seed").status_code == 200


def test_tasks_flip_both_ways_and_are_narrowed_by_category(launch: Launcher) -> None:
    first, second = launch(), launch()
    hard = [replace(one, category="4 hops") for one in outcomes(True, False, True)]
    judge(first, hard)
    judge(second, [replace(one, category="4 hops") for one in outcomes(False, True, True)])
    found = comparing.flips(first, second)
    assert [flip.task_id for flip in found.comparison.lost] == ["t0"]
    assert [flip.task_id for flip in found.comparison.gained] == ["t1"]
    assert found.categories == {"4 hops": 3}


def test_mcnemars_p_is_of_the_category_that_is_shown(api: Api, launch: Launcher) -> None:
    first, second = launch(), launch()
    played = outcomes(*[True] * 8)
    mixed = [replace(one, category="3" if i < 4 else "4") for i, one in enumerate(played)]
    judge(first, mixed)
    judge(second, [replace(one, success=False) for one in mixed])
    address = f"compare/tasks?first={first.pk}&second={second.pk}"
    assert api("GET", address).json()["p"] == pytest.approx(2 * 0.5**8)
    narrowed = api("GET", f"{address}&category=3").json()
    assert narrowed["p"] == pytest.approx(2 * 0.5**4)
    assert (narrowed["categories"], narrowed["tasks"]) == ({"3": 4, "4": 4}, 4)
    assert api("GET", f"{address}&category=5").status_code == 422
    assert api("GET", f"compare/tasks?first={first.pk}&second={first.pk}").status_code == 422


def test_runs_without_common_tasks_are_told_so(api: Api, launch: Launcher) -> None:
    first, second, third = launch(seed=1), launch(seed=2), launch()
    judge(first, outcomes(True, False))
    judge(second, [replace(one, task_id=f"other {one.task_id}") for one in outcomes(True, False)])
    answer = api("GET", f"compare/tasks?first={first.pk}&second={second.pk}")
    assert answer.status_code == 409 and "same tasks" in answer.json()["detail"]
    answer = api("GET", f"compare/tasks?first={first.pk}&second={third.pk}")
    assert answer.status_code == 409 and "no evaluation" in answer.json()["detail"]


def test_groups_have_means_over_their_runs_and_welchs_difference(
    api: Api, launch: Launcher
) -> None:
    runs = []
    for threads, solved in ((1, 4), (1, 6), (2, 7), (2, 9)):
        run = launch(seed=len(runs), trainer={"threads": threads})
        judge(run, outcomes(*[place < solved for place in range(10)]))
        runs.append(run)
    ids = ",".join(run.pk for run in runs)
    body = api("GET", f"compare/completion?runs={ids}&group=variant").json()
    first, second = body["groups"]
    assert (first["n"], first["mean"], first["label"]) == (2, 0.5, "threads=1")
    # By hand: both have s = sqrt(0.02), so that Welch has 2 degrees of freedom, t = 4.3027.
    half = 4.302652729911275 * math.sqrt(2 * 0.02 / 2)
    assert second["difference"]["value"] == pytest.approx(0.3)
    assert second["difference"]["upper"] == pytest.approx(0.3 + half)
    assert first["difference"] is None
    assert [one["name"] for one in body["runs"]] == [run.name for run in runs]


def test_a_run_alone_has_no_interval_of_its_group(api: Api, launch: Launcher) -> None:
    runs = [launch(seed=0), launch(seed=1)]
    judge(runs[0], outcomes(*SOLVED))
    ids = ",".join(run.pk for run in runs)
    alone, without = api("GET", f"compare/completion?runs={ids}&group=seed").json()["groups"]
    assert (alone["n"], alone["interval"]) == (1, None)
    assert (without["n"], without["mean"], without["difference"]) == (0, None, None)


@pytest.mark.parametrize("part", ["completion", "tasks", "parallel", "config", "values", "charts"])
def test_every_part_is_a_page_and_a_fragment(
    page: Client, project: Project, launch: Launcher, part: str
) -> None:
    runs = [launch(), launch(seed=1, name="<b>other")]
    for run in runs:
        judge(run, outcomes(*SOLVED))
    ids = ",".join(run.pk for run in runs)
    address = f"/projects/{project.pk}/compare/?runs={ids}&part={part}"
    whole = page.get(address).content.decode()
    assert "<html" in whole and "<b>other" not in whole
    if part != "charts":
        fragment = page.get(address, headers={"HX-Request": "true"}).content.decode()
        assert "<html" not in fragment and "part=" in fragment


def stored(run: Run, name: str) -> None:
    """A trajectory of the run that can be replayed."""
    blob, shard, rows = write_shard([trajectory(name=name, prompt="where?")])
    storage.put_blob(blob)
    Trajectory.objects.create(
        run=run, attempt=run.attempts.get(), project=run.project, shard=shard, cursor=1, **rows[0]
    )


def test_flips_open_both_replays_where_both_are_stored(
    page: Client, project: Project, launch: Launcher
) -> None:
    first, second = launch(), launch()
    judge(first, [replace(one, trajectory=f"a{n}") for n, one in enumerate(outcomes(True, True))])
    judge(second, [replace(one, trajectory=f"b{n}") for n, one in enumerate(outcomes(False, True))])
    address = f"/projects/{project.pk}/compare/?runs={first.pk},{second.pk}&part=tasks"
    stored(first, "a0")
    assert "/trajectories/a0/" in page.get(address).content.decode()
    stored(second, "b0")
    assert "/trajectories/compare?a=a0&amp;b=b0" in page.get(address).content.decode()


def test_flips_without_replays_say_so(page: Client, project: Project, launch: Launcher) -> None:
    first, second = launch(), launch()
    judge(first, outcomes(True, True))
    judge(second, outcomes(False, True))
    address = f"/projects/{project.pk}/compare/?runs={first.pk},{second.pk}&part=tasks"
    text = page.get(address).content.decode()
    assert "t0" in text and "not stored" in text
    swapped = page.get(f"{address}&a={second.pk}&b={first.pk}").content.decode()
    assert "B solves, A fails" in swapped
    text = page.get(f"{address}&category=9+hops").content.decode()
    assert "No common task is of the category" in text


def test_a_config_of_a_megabyte_is_cut_and_searched(
    page: Client, project: Project, owner: User
) -> None:
    runs = []
    for value in range(2):
        config = {f"key_{n}": {"deep": [value, "x" * 40]} for n in range(14_000)}
        begun = services.begin_external(
            project, owner, config, services.Launch(name=f"big {value}")
        )
        runs.append(begun.run)
    ids = ",".join(run.pk for run in runs)
    address = f"/projects/{project.pk}/compare/?runs={ids}&part=config"
    text = page.get(address).content.decode()
    assert text.count("config-path") == 300 and len(text) < 500_000
    assert "key_13999" in page.get(f"{address}&field=key_13999").content.decode()


@pytest.mark.parametrize("part", ["", "completion", "parallel", "config", "values"])
@pytest.mark.parametrize("group", ["", "variant"])
def test_the_number_of_queries_does_not_depend_on_the_number_of_runs(
    page: Client, project: Project, launch: Launcher, part: str, group: str
) -> None:
    runs = [launch(seed=seed) for seed in range(8)]
    for run in runs:
        judge(run, outcomes(*SOLVED))
        logged(run, completion_rate=0.5)

    def count(some: list[Run]) -> int:
        ids = ",".join(run.pk for run in some)
        address = f"/projects/{project.pk}/compare/?runs={ids}&part={part}&group={group}"
        with CaptureQueriesContext(connection) as queries:
            answer = page.get(address, headers={"HX-Request": "true"} if part else {})
        assert answer.status_code == 200
        return len(queries)

    count(runs)
    assert count(runs[:2]) == count(runs)


def test_more_runs_than_can_be_compared_are_refused(
    page: Client, api: Api, project: Project
) -> None:
    ids = ",".join(f"run_{n}" for n in range(51))
    assert page.get(f"/projects/{project.pk}/compare/?runs={ids}").status_code == 200
    assert api("GET", f"compare/completion?runs={ids}").status_code == 422
    assert page.get(f"/projects/{project.pk}/compare/?runs=%00,x").status_code == 200
