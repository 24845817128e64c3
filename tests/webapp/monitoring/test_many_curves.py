"""Curves of many runs: the same as each run's own, and means of groups against plain sums."""

import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.webapp.support import Api
from webapp.experiments.models import Attempt, Run
from webapp.monitoring.many_curves import Band, bands, clocks_of, curves
from webapp.monitoring.models import Point, RunEvent, Series
from webapp.monitoring.queries import clocks
from webapp.monitoring.rollups import rolled

Launcher = Callable[..., Run]
KL = "train/kl"


def measure(run: Run, values: dict[int, float], attempt: int = 1, name: str = KL) -> None:
    of, _ = Attempt.objects.get_or_create(run=run, number=attempt)
    last = max(values)
    series = Series.objects.create(
        run=run, attempt=of, name=name, axis="trainer_step", last_step=last,
        last_value=values[last], cursor=1,
    )  # fmt: skip
    Point.objects.bulk_create(
        Point(series=series, step=step, at=float(step), value=value, cursor=1)
        for step, value in values.items()
    )


def band(group: list[Run], buckets: int = 300) -> Band:
    ((found,),) = bands([group], [KL], buckets)
    return found


def test_many_runs_have_the_curves_of_each(launch: Launcher) -> None:
    runs = [launch(), launch()]
    measure(runs[0], {step: step / 7 for step in range(0, 900, 3)})
    measure(runs[0], {step: -step / 7 for step in range(600, 1200)}, attempt=2)
    measure(runs[1], {0: 1.0, 5: math.nan})
    measure(runs[1], {1: 2.0}, name="other")
    found = curves(runs, [KL, "other", "none"], 50)
    own = [
        {"run": run.pk, **vars(one)}
        for run in runs
        for one in rolled(run, [KL, "other"], buckets=50)
    ]
    assert sorted(found, key=lambda one: one["id"]) == sorted(own, key=lambda one: one["id"])


def test_bare_curves_have_what_a_line_needs(launch: Launcher, api: Api) -> None:
    run = launch()
    measure(run, {step: math.nan if step % 50 == 7 else step / 7 for step in range(400)})
    (whole,) = curves([run], [KL], 50)
    address = f"compare/curves?runs={run.pk}&names={KL}&buckets=50"
    body = api("GET", f"{address}&bare=true").json()
    assert body["columns"] == ["step", "last", "count", "nonfinite", "at"]
    assert body["series"][0]["buckets"] == [[b[0], b[2], *b[6:]] for b in whole["buckets"]]
    assert api("GET", address).json()["series"] == [whole]


def test_values_at_the_ends_of_what_a_float_holds_are_drawn(launch: Launcher, api: Api) -> None:
    runs = [launch(), launch(seed=1)]
    for run in runs:
        measure(run, {0: 1e200, 1: -1e200, 2: 1.7e308, 3: 1.7e308, 4: -1.7e308, 40: 5e-324})
    ids = ",".join(run.pk for run in runs)
    address = f"compare/curves?runs={ids}&names={KL}&buckets=1"
    (bucket,) = api("GET", address).json()["series"][0]["buckets"]
    assert bucket[1:5] == [1e200, 5e-324, -1.7e308, 1.7e308]
    assert -1.7e308 <= bucket[5] <= 1.7e308
    for group in ("variant", "seed"):
        assert api("GET", f"{address}&group={group}").status_code == 200


def test_the_number_of_queries_depends_on_no_number(launch: Launcher) -> None:
    runs = [launch() for _ in range(5)]
    for run in runs:
        for metric in range(4):
            measure(run, dict.fromkeys(range(200), 1.0), name=f"m{metric}")

    def count(some: list[Run], names: list[str]) -> int:
        with CaptureQueriesContext(connection) as queries:
            curves(some, names, 100)
            bands([some], names, 100)
        return len(queries)

    assert count(runs[:1], ["m0"]) == count(runs, ["m0", "m1", "m2", "m3"])


def test_a_band_is_the_mean_with_students_interval(launch: Launcher) -> None:
    values = [[0.1, 0.5], [0.3, 0.6], [0.8, 0.1]]
    group = []
    for row in values:
        group.append(launch())
        measure(group[-1], dict(enumerate(row)))
    found = band(group)
    assert (found.steps, found.n, found.whole_until, found.left_out) == ([0, 1], [3, 3], 1, 0)
    for place in range(2):
        column = [row[place] for row in values]
        half = 4.302652729911275 * statistics.stdev(column) / math.sqrt(3)  # t(2) of 95%
        assert found.mean[place] == pytest.approx(statistics.fmean(column))
        assert found.high[place] == pytest.approx(found.mean[place] + half)
        assert (found.least[place], found.most[place]) == (min(column), max(column))


def test_a_run_alone_is_itself(launch: Launcher) -> None:
    run = launch()
    measure(run, {0: 0.25, 10: 0.5})
    found = band([run])
    assert (found.steps, found.mean, found.n) == ([0, 10], [0.25, 0.5], [1, 1])
    assert (found.low, found.high) == ([None, None], [None, None])


def test_after_the_shortest_run_the_mean_is_marked_as_of_fewer(launch: Launcher) -> None:
    group = [launch(), launch()]
    measure(group[0], {0: 1.0, 1: 1.0})
    measure(group[1], {0: 3.0, 1: 3.0, 2: 9.0})
    found = band(group)
    assert (found.mean, found.n, found.whole_until) == ([2.0, 2.0, 9.0], [2, 2, 1], 1)
    assert found.low[2] is None


def test_nothing_is_interpolated_between_steps_of_ones_own(launch: Launcher) -> None:
    """Every 10 steps and every 15: buckets widen until most of them have a value of both."""
    group = [launch(), launch()]
    ten, fifteen = {s: float(s) for s in range(0, 601, 10)}, dict.fromkeys(range(0, 601, 15), 1.0)
    measure(group[0], ten)
    measure(group[1], fifteen)
    found = band(group, buckets=1500)
    assert found.level == 3 and set(found.n) == {2}
    assert found.left_out <= len(found.steps)
    width = 2**found.level
    for step, mean in zip(found.steps, found.mean, strict=True):
        both = [
            statistics.fmean(v for s, v in of.items() if step <= s < step + width)
            for of in (ten, fifteen)
        ]
        assert mean == pytest.approx(statistics.fmean(both))


def test_the_newer_attempt_counts_and_what_is_no_number_does_not(launch: Launcher) -> None:
    run, other = launch(), launch()
    measure(run, {0: 1.0, 1: 5.0, 2: math.inf})
    measure(run, {1: 2.0, 2: math.nan}, attempt=2)
    measure(other, {0: 1.0, 1: 4.0, 2: 8.0})
    found = band([run, other])
    assert (found.steps, found.mean, found.n) == ([0, 1, 2], [1.0, 3.0, 8.0], [2, 2, 1])
    assert found.nonfinite == 1 and found.runs == 2


def test_clocks_are_those_of_each_run(launch: Launcher) -> None:
    runs = [launch(), launch()]
    for place, run in enumerate(runs):
        for at in range(30 * (place + 1)):
            data = {"trainer_step": at, "rollout_step": 2 * at, "environment_step": 0, "tokens": 9}
            RunEvent.objects.create(
                run=run, attempt=run.attempts.get(), kind="clock", source="t", seq=at,
                at=float(at), cursor=1, data=data,
            )  # fmt: skip
    found = clocks_of(runs, 10)
    assert found == {run.pk: clocks(run, 10) for run in runs}


def test_the_api_gives_curves_and_bands(api: Api, launch: Launcher) -> None:
    runs = [launch(seed=0), launch(seed=1)]
    for place, run in enumerate(runs):
        measure(run, {0: float(place)})
    ids = ",".join(run.pk for run in runs)
    body: dict[str, Any] = api("GET", f"compare/curves?runs={ids}&names={KL}").json()
    assert [one["run"] for one in body["series"]] == [run.pk for run in runs]
    assert set(body["cursors"]) == {run.pk for run in runs}
    (group,) = api("GET", f"compare/curves?runs={ids}&names={KL}&group=variant").json()["groups"]
    assert (group["curves"][0]["mean"], group["curves"][0]["n"]) == ([0.5], [2])
    assert api("GET", f"compare/curves?runs={ids}&names=").status_code == 422
