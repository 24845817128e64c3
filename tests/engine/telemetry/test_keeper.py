"""Which trajectories are stored: all of a quiet run, a sample of a busy one, failures always."""

import dataclasses
import json

from engine.telemetry import keeper as keeper_module
from engine.telemetry.keeper import KEEP_ALL_BELOW_PER_S, KEEP_ONE_GROUP_IN, Keeper
from engine.telemetry.spool import Spool
from tests.engine.pool.samples import trajectory


class Time:
    value = 0.0

    def __call__(self) -> float:
        return self.value


def stored(spool: Spool) -> int:
    lines = [line for path in spool.sealed() for line in path.read_bytes().splitlines()]
    return sum(len(json.loads(line).get("rows", ())) for line in lines)


def group(success: bool = True, size: int = 8, purpose: str = "train"):
    made = trajectory(reward=float(success))
    made = dataclasses.replace(made, purpose=purpose)
    return [made] * size


def test_it_keeps_everything_below_the_rate(tmp_path):
    time = Time()
    keeper = Keeper(Spool(tmp_path, "r"), now=time)
    for _ in range(100):
        keeper.add_group(group())
        time.value += 8 / KEEP_ALL_BELOW_PER_S
    keeper.flush()
    assert keeper.kept == keeper.produced == 800
    assert stored(keeper._spool) == 800


def test_above_the_rate_it_keeps_whole_groups_by_sample(tmp_path):
    time = Time()
    keeper = Keeper(Spool(tmp_path, "r"), now=time)
    for _ in range(2000):
        keeper.add_group(group())
        time.value += 0.01
    assert keeper.kept % 8 == 0
    share = keeper.kept / keeper.produced
    assert 1 / KEEP_ONE_GROUP_IN < share < 3 / KEEP_ONE_GROUP_IN


def test_failures_and_evaluations_are_always_kept(tmp_path):
    keeper = Keeper(Spool(tmp_path, "r"), now=Time())
    for _ in range(100):
        keeper.add_group(group(success=False))
        keeper.add_group(group(purpose="evaluate"))
    assert keeper.kept == keeper.produced


def test_it_hands_over_every_few_seconds_and_when_it_holds_much(tmp_path, monkeypatch):
    time = Time()
    spool = Spool(tmp_path, "r")
    keeper = Keeper(spool, now=time)
    keeper.add_group(group())
    assert stored(spool) == 0
    time.value += keeper_module.FLUSH_S
    keeper.add_group(group())
    assert stored(spool) == 16
    monkeypatch.setattr(keeper_module, "_FLUSH_BYTES", 100)
    keeper.add_group(group())
    assert stored(spool) == 24
