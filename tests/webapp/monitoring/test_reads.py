"""What is read: roll-ups against a plain oracle, cursors, logs, pool, lanes; NaN stays NaN."""

import itertools
import json
import math
import random
from typing import Any

import pytest
from django.db.models import F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp.support import Api, Driver, metrics, start
from webapp.experiments.models import Run
from webapp.monitoring import queries, rollups
from webapp.monitoring.ingest import parsing, storing
from webapp.monitoring.models import DeviceSample, Point, Rollup, Series
from webapp.monitoring.numbers import encode_optional

NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf]))


SOURCES = itertools.count()


def shuffled(items: list[Any]) -> list[Any]:
    return random.sample(items, len(items))


def store(driver: Driver, *items: Any) -> Run:
    storing.store(driver.token, parsing.parse(json.dumps({"items": items}).encode()))
    return Run.objects.get(pk=driver.run.pk)


def fill(driver: Driver, points: dict[int, float], name: str = "loss") -> Run:
    """Store points in batches of random sizes and order, as the only ones of a series."""
    Series.objects.filter(run=driver.run, name=name).delete()
    source = f"{name}.{next(SOURCES)}"
    items = [
        {**metrics(seq, step, source, at=float(step)), "values": {name: encode_optional(value)}}
        for seq, (step, value) in enumerate(points.items(), start=1)
    ]
    # Out of order, but with no more holes in the numbers than ingest remembers.
    items = [item for start in range(0, len(items), 200) for item in shuffled(items[start:][:200])]
    run = driver.run
    while items:
        run = store(driver, *items[:500])
        del items[:500]
        if random.random() < 0.5:
            rollups.roll_up_some()  # as ingest does between batches
    return run


def oracle(points: dict[int, float], level: int, low: int, high: int) -> list[list[Any]]:
    """The buckets of 2**level steps that touch low..high, from a plain list."""
    found = []
    for bucket in range(low >> level, (high >> level) + 1):
        inside = [(s, v) for s, v in sorted(points.items()) if s >> level == bucket]
        if not inside:
            continue
        finite = [v for _, v in inside if math.isfinite(v)]
        numbers: list[Any] = [None] * 5
        if finite:
            mean = math.fsum(finite) / len(finite)
            numbers = [finite[0], finite[-1], min(finite), max(finite), pytest.approx(mean)]
        count = len(finite)
        found.append([bucket << level, *numbers, count, len(inside) - count, float(inside[-1][0])])
    return found


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    points=st.dictionaries(st.integers(0, 5000), NUMBERS, min_size=1, max_size=120),
    buckets=st.sampled_from([1, 3, 40, 200, 1500]),
    window=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
)
def test_rollups_equal_a_plain_computation(
    driver: Driver, points: dict[int, float], buckets: int, window: tuple[int, int]
) -> None:
    run = fill(driver, points)
    (whole,) = rollups.rolled(run, ["loss"], buckets=buckets)
    low, high = min(points), max(points)
    assert whole.buckets == oracle(points, whole.level, low, high)
    assert len(whole.buckets) <= buckets
    (part,) = rollups.rolled(run, ["loss"], start=window[0], stop=window[1], buckets=buckets)
    low, high = max(low, window[0]), min(high, window[1])
    assert part.buckets == (oracle(points, part.level, low, high) if low <= high else [])


def test_many_points_come_in_few_buckets(driver: Driver) -> None:
    points = {step: math.sin(step / 500) for step in range(0, 40_000, 7)}
    run = fill(driver, points)
    (series,) = rollups.rolled(run, ["loss"], buckets=100)
    assert series.level == 9
    assert series.buckets == oracle(points, 9, 0, max(points))
    assert Rollup.objects.filter(series=series.id, level=5).exists()


def test_appending_moves_no_old_bucket(driver: Driver) -> None:
    points = {step: float(step) for step in range(4000)}
    run = fill(driver, points)
    (before,) = rollups.rolled(run, ["loss"], buckets=200)
    run = store(driver, metrics(1, 4000, "later", at=4000.0, loss=1.0))
    (after,) = rollups.rolled(run, ["loss"], buckets=200)
    assert after.level == before.level
    assert after.buckets[: len(before.buckets) - 1] == before.buckets[:-1]


def test_a_value_that_is_overwritten_counts_once(driver: Driver) -> None:
    fill(driver, dict.fromkeys(range(100), 1.0))
    rollups.roll_up_some()
    run = store(driver, metrics(1, 40, "later", at=1e6, loss=5.0))
    (series,) = rollups.rolled(run, ["loss"], buckets=2)
    assert [bucket[6] for bucket in series.buckets] == [64, 36]
    assert series.buckets[0][4] == 5.0


def test_the_background_leaves_no_run_with_stale_series(driver: Driver, launch: Any) -> None:
    other = start(launch())
    for one in (driver, other):
        fill(one, dict.fromkeys(range(100), 1.0))
    while rollups.roll_up_some(most=1):
        pass
    assert not Run.objects.filter(has_stale_series=True).exists()
    assert not Series.objects.filter(cursor__gt=F("rolled")).exists()
    store(other, metrics(1, 100, "later", at=1e6, loss=1.0))
    assert Run.objects.get(has_stale_series=True) == other.run


def test_roll_ups_of_the_background_and_of_readers_agree(driver: Driver) -> None:
    run = fill(driver, {step: float(step) for step in range(3000)})
    while rollups.roll_up_some():
        pass
    stored = list(Rollup.objects.order_by("level", "bucket").values())
    Series.objects.update(rolled=0)
    rollups.rolled(run, ["loss"], buckets=10)
    assert list(Rollup.objects.order_by("level", "bucket").values()) == stored


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_told_apart_everywhere(
    driver: Driver, api: Api, value: float
) -> None:
    run = fill(driver, {0: 1.0, 1: value})
    text = encode_optional(value)

    def strict(path: str) -> Any:
        def never(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        response = api("GET", path)
        assert response.status_code == 200, response.content
        return json.loads(response.content, parse_constant=never)

    assert strict(f"runs/{run.pk}/series")["items"][0]["last"] == text
    raw = strict(f"runs/{run.pk}/points?after=0")["series"][0]["points"]
    assert raw == [[0, 0.0, 1.0], [1, 1.0, text]]
    rolled = strict(f"runs/{run.pk}/points?names=loss&buckets=1")["series"][0]["buckets"]
    assert rolled == [[0, 1.0, 1.0, 1.0, 1.0, 1.0, 1, 1, 1.0]]
    assert strict(f"compare?runs={run.pk}")["metrics"] == {"loss": [text]}
    for path in (f"runs/{run.pk}", "runs?sort=-loss", "runs?q=loss>0"):
        strict(path)


def test_nothing_finite_is_not_computed(driver: Driver, api: Api) -> None:
    run = fill(driver, {0: math.nan})
    answer = api("GET", f"runs/{run.pk}/points?names=loss").json()
    assert answer["series"][0]["buckets"] == [[0, None, None, None, None, None, 0, 1, 0.0]]


def test_points_after_a_cursor_come_once_in_whole_transactions(driver: Driver) -> None:
    for batch in range(6):
        items = [metrics(batch * 10 + n, batch * 10 + n, loss=1.0, b=2.0) for n in range(1, 11)]
        run = store(driver, *items)
    seen: list[tuple[str, int]] = []
    cursor, rounds = 0, 0
    while True:
        page = queries.points_after(run, cursor, limit=50)
        seen += [(s["name"], p[0]) for s in page.series for p in s["points"]]
        cursor, rounds = page.cursor, rounds + 1
        if not page.more:
            break
    assert cursor == run.cursor
    assert rounds == 3
    assert len(seen) == len(set(seen)) == 120 == Point.objects.filter(series__run=run).count()


def test_a_transaction_that_is_too_large_comes_whole(driver: Driver) -> None:
    run = store(driver, *[metrics(n, n, loss=1.0) for n in range(1, 100)])
    page = queries.points_after(run, 0, limit=10)
    assert len(page.series[0]["points"]) == 99
    assert page.cursor == run.cursor


def test_rare_series_keep_every_point(driver: Driver) -> None:
    dense = dict.fromkeys(range(3000), 1.0)
    fill(driver, dense, "dense")
    rare = {step: float(step) for step in range(0, 3000, 500)}
    run = fill(driver, rare, "rare")
    (series,) = rollups.rolled(run, ["rare"], buckets=1500)
    assert [bucket[1] for bucket in series.buckets] == list(rare.values())


def log(seq: int, text: str, level: str = "info") -> dict[str, Any]:
    return {
        "kind": "log", "source": "driver", "seq": seq, "at": float(seq),
        "text": text, "level": level,
    }  # fmt: skip


def test_logs_are_read_from_their_end_and_searched(driver: Driver, api: Api) -> None:
    levels = ["debug", "info", "warning", "error"]
    store(driver, *[log(n, f"line {n}", levels[n % 4]) for n in range(1, 21)])
    path = f"runs/{driver.run.pk}/logs"

    def texts(query: str) -> list[str]:
        return [row["text"] for row in api("GET", f"{path}?{query}").json()["items"]]

    assert texts("limit=3") == ["line 18", "line 19", "line 20"]
    first = api("GET", f"{path}?limit=3").json()["items"][0]["id"]
    assert texts(f"limit=2&before={first}") == ["line 16", "line 17"]
    assert texts(f"after={first}") == ["line 19", "line 20"]
    assert texts("search=LINE 1&level=error") == ["line 11", "line 15", "line 19"]
    assert texts("search=%25") == []


def pool(seq: int) -> dict[str, Any]:
    return {
        "kind": "pool", "source": "pool", "seq": seq, "at": float(seq), "trainer_version": seq,
        "produced": seq, "consumed": 0, "waiting": seq, "discarded": {}, "categories": {},
        "target": {}, "staleness": {}, "oldest_s": 0.0,
    }  # fmt: skip


def test_pool_history_is_thinned_and_keeps_the_newest(driver: Driver, api: Api) -> None:
    store(driver, *[pool(n) for n in range(1, 100)])
    items = api("GET", f"runs/{driver.run.pk}/pool?limit=10").json()["items"]
    assert len(items) == 10
    assert items[-1]["produced"] == 99
    assert [item["at"] for item in items] == sorted(item["at"] for item in items)
    since = api("GET", f"runs/{driver.run.pk}/pool?since=97").json()["items"]
    assert [item["at"] for item in since] == [98.0, 99.0]


def test_trees_come_newest_first_and_page_back(driver: Driver, api: Api) -> None:
    tree = {
        "kind": "tree", "source": "trainer-0", "parents": [-1, 0], "tokens": [3, 1],
        "samples": [2, 1], "label": [0, 0], "labels": ["3 hops"], "nodes": 2, "total_tokens": 4,
        "sample_tokens": 7,
    }  # fmt: skip
    store(driver, *[{**tree, "seq": n, "at": float(n), "step": 10 * n} for n in (1, 2, 3)])
    path = f"runs/{driver.run.pk}/trees"
    (newest,) = api("GET", path).json()["items"]
    assert (newest["step"], newest["parents"], newest["labels"]) == (30, [-1, 0], ["3 hops"])
    earlier = api("GET", f"{path}?before={newest['id']}&limit=20").json()["items"]
    assert [item["step"] for item in earlier] == [20, 10]


def test_lanes_tell_how_busy_each_actor_was(driver: Driver, api: Api) -> None:
    spans = [["generate", 100.0, 104.0], ["idle", 104.0, 108.0], ["train", 108.0, 110.0]]
    store(
        driver,
        {"kind": "spans", "source": "rollout-0", "seq": 1, "at": 110.0, "spans": spans},
        {
            "kind": "spans",
            "source": "trainer",
            "seq": 1,
            "at": 112.0,
            "spans": [["train", 90, 112]],
        },
    )
    path = f"runs/{driver.run.pk}/spans"
    lanes = {lane["source"]: lane for lane in api("GET", f"{path}?from=100&to=110").json()["lanes"]}
    assert lanes["rollout-0"]["shares"] == {
        "generate": pytest.approx(0.4),
        "idle": pytest.approx(0.4),
        "train": pytest.approx(0.2),
    }
    assert lanes["rollout-0"]["busy"] == pytest.approx(0.6)
    assert lanes["trainer"]["busy"] == pytest.approx(1.0)
    assert lanes["trainer"]["spans"] == [["train", 100.0, 110.0]]
    assert len(api("GET", path).json()["lanes"]) == 2
    assert api("GET", f"{path}?from=5&to=4").status_code == 422


def test_clocks_join_the_axes(driver: Driver, api: Api) -> None:
    clock = {
        "kind": "clock", "source": "driver", "trainer_step": 4, "rollout_step": 50,
        "environment_step": 400, "tokens": 9000,
    }  # fmt: skip
    store(driver, {**clock, "seq": 1, "at": 7.0})
    answer = api("GET", f"runs/{driver.run.pk}/clock").json()
    assert answer["items"] == [[1, 7.0, 4, 50, 400, 9000]]


def test_the_newest_sample_of_each_node_is_shown(api: Api) -> None:
    for node, at in [("a", 1.0), ("a", 3.0), ("b", 2.0)]:
        DeviceSample.objects.create(node=node, at=at, devices=[{"name": "cpu0", "busy": 0.5}])
    answer = api("GET", "cluster/devices").json()
    assert [(row["node"], row["at"]) for row in answer] == [("a", 3.0), ("b", 2.0)]


def test_series_are_searched_by_the_server(driver: Driver, api: Api) -> None:
    store(driver, metrics(1, 0, **{f"layer/{n}/norm": 1.0 for n in range(300)}))
    path = f"runs/{driver.run.pk}/series"
    assert len(api("GET", path).json()["items"]) == 300
    assert len(api("GET", f"{path}?search=LAYER/12").json()["items"]) == 11
    assert api("GET", f"{path}?search=nothing").json()["items"] == []


def test_reading_many_series_takes_as_many_queries(
    driver: Driver, api: Api, django_assert_max_num_queries: Any
) -> None:
    store(driver, metrics(1, 0, **{f"m{n}": 1.0 for n in range(100)}))
    with django_assert_max_num_queries(8):
        answer = api("GET", f"runs/{driver.run.pk}/points?after=0").json()
    assert len(answer["series"]) == 100
