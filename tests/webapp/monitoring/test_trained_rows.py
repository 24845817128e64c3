"""What training saw of tokens: stored once, by the run that uploaded it, whatever came first."""

from array import array
from typing import Any

import pytest

from engine.records.shards import write_shard
from engine.records.trained import TrainedTokens, write_trained
from tests.webapp.monitoring.test_drivers import shipped, uploaded
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import SPEC, Driver, ingest, start
from webapp.experiments import services
from webapp.reviews.models import TrainedTokens as Stored
from webapp.reviews.models import Trajectory

pytestmark = pytest.mark.usefixtures("at_ingest")


def item(name: str = "t-1", step: int = 7) -> TrainedTokens:
    columns = {"logprob": array("f", [-0.5, -0.25]).tobytes()}
    return TrainedTokens(name, step, 3, [(0, 4, 6)], columns)


def told(driver: Driver, shard: str, rows: list[Any], seq: int = 1) -> Any:
    event = {"kind": "trained", "source": "trainer-0", "seq": seq, "at": 1.0, "shard": shard}
    return ingest("POST", "events", driver.token, {"items": [{**event, "rows": rows}]}).json()


def test_rows_are_stored_once_and_need_their_shard(driver: Driver) -> None:
    blob, shard, rows = write_trained([item(), item("t-2")])
    assert told(driver, shard, rows)["rejected"][0]["field"] == "shard"
    uploaded(driver, blob, shard)
    for seq in (2, 3):
        assert told(driver, shard, rows, seq)["accepted"] == 1
    assert list(Stored.objects.order_by("pk").values_list("trajectory_id", "step", "tokens")) == [
        ("t-1", 7, 2),
        ("t-2", 7, 2),
    ]
    assert set(Stored.objects.values_list("run_id", "attempt_id")) == {
        (driver.run.pk, driver.attempt.pk)
    }


@pytest.mark.parametrize("first", ["trained", "trajectory"])
def test_either_may_come_first(driver: Driver, first: str) -> None:
    blob, shard, rows = write_trained([item()])
    episode, episodes, index = write_shard([trajectory(name="t-1")])
    uploaded(driver, blob, shard)
    uploaded(driver, episode, episodes)
    calls = [lambda: told(driver, shard, rows), lambda: shipped(driver, episodes, index)]
    for call in calls if first == "trained" else calls[::-1]:
        assert call()["accepted"] == 1
    assert Stored.objects.get().trajectory_id == Trajectory.objects.get().pk


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", -1),
        ("left_out", "laziness"),
        ("trajectory", "../t"),
        ("length", 0),
        ("version", 2**31),
    ],
)
def test_a_bad_row_is_named(driver: Driver, field: str, value: Any) -> None:
    blob, shard, rows = write_trained([item()])
    uploaded(driver, blob, shard)
    answer = told(driver, shard, [{**rows[0], field: value}])
    assert answer["rejected"][0]["field"] == f"rows.{field}"
    assert not Stored.objects.exists()


def test_nobody_speaks_of_the_trajectories_of_another_run(driver: Driver, launch: Any) -> None:
    episode, episodes, index = write_shard([trajectory(name="t-1")])
    uploaded(driver, episode, episodes)
    shipped(driver, episodes, index)
    other = start(launch())
    blob, shard, rows = write_trained([item()])
    uploaded(other, blob, shard)
    assert told(other, shard, rows)["rejected"][0]["field"] == "rows.trajectory"
    assert not Stored.objects.exists()


def test_who_knows_a_hash_does_not_get_at_the_record(driver: Driver, outsider: Any) -> None:
    project = outsider.memberships.get().project
    elsewhere = start(services.launch_run(project, outsider, services.check_spec(SPEC)))
    blob, shard, rows = write_trained([item()])
    uploaded(driver, blob, shard)
    assert told(elsewhere, shard, rows)["rejected"][0]["field"] == "shard"
