"""Packing a group keeps its trajectories and tells the rules the truth about them."""

import dataclasses

import pytest

from engine.pool.group import Group, pack
from engine.records.trajectory import StopReason
from tests.engine.pool.samples import group, trajectory


def test_it_gives_the_trajectories_back_unchanged():
    members = [trajectory("g", 0.0, version=3), trajectory("g", 1.0, version=5)]
    packed = pack(1, 3, members, now=1.0)
    assert packed.trajectories() == members


def test_it_takes_the_version_of_the_oldest_sampled_token():
    packed = pack(1, 9, [trajectory(version=5), trajectory(version=3)], now=1.0)
    assert packed.version == 3


def test_it_takes_the_version_at_start_where_nothing_was_sampled():
    empty = trajectory()
    empty.segments = []
    assert pack(1, 7, [empty], now=1.0).version == 7


def test_it_counts_no_reward_of_an_episode_that_broke_under_the_policy():
    broken = trajectory(reward=1.0, stop_reason=StopReason.INFRA_ERROR)
    assert pack(1, 0, [trajectory(reward=0.0), broken], now=1.0).rewards == (0.0, None)


def test_it_survives_its_facts():
    packed = group(4, version=2, rewards=(None, 1.0))
    assert Group.from_facts(packed.facts(), packed.payload) == packed


def test_it_refuses_trajectories_of_different_groups():
    with pytest.raises(ValueError, match="different groups"):
        pack(1, 0, [trajectory("a"), trajectory("b")], now=1.0)
    with pytest.raises(ValueError, match="at least one"):
        pack(1, 0, [], now=1.0)


def test_it_says_so_when_the_payload_is_damaged():
    damaged = dataclasses.replace(group(1), payload=b"nonsense")
    with pytest.raises(ValueError, match="damaged"):
        damaged.trajectories()


def test_it_unpacks_no_more_than_a_group_can_be(monkeypatch: pytest.MonkeyPatch):
    packed = pack(1, 0, [trajectory("g")], now=1.0)
    assert packed.trajectories()
    monkeypatch.setattr("engine.pool.group._MAX_BYTES", 100)
    with pytest.raises(ValueError, match="more than 100 B"):
        packed.trajectories()
