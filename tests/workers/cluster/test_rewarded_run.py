"""Rewards on a real Ray: a curriculum through stop and resume, and the end of dynamic sampling."""

import pytest

from engine.records.shards import read_trajectory
from engine.records.trajectory import Trajectory
from tests.engine.telemetry.ingest_server import IngestServer
from tests.workers.cluster.running import Job, series, spec

pytestmark = pytest.mark.stack

SFT_STEPS = 6


def weights(ingest: IngestServer) -> dict[int, float]:
    return series(ingest, "reward/process_weight")


def trained(ingest: IngestServer) -> list[Trajectory]:
    found = []
    for item in ingest.of_kind("trajectories"):
        blob = ingest.blobs[item["shard"]]
        for row in item["rows"]:
            if row["purpose"] == "train":
                part = blob[row["offset"] : row["offset"] + row["length"]]
                found.append(read_trajectory(part))
    return found


def test_a_curriculum_moves_with_the_steps_and_goes_on_where_it_was(cluster, ingest, tmp_path):
    """At a threshold of 0 an untrained model's success is steady, and length ramps in."""
    told = spec(rl_steps=200)
    told["reward"]["curriculum"] = {
        "process": ["length"],
        "success_above": 0.0,
        "steady_steps": 3,
        "ramp_steps": 10,
        "weight_max": 0.3,
    }
    told["stages"][2]["dynamic_sampling"] = False  # equal outcomes are all it has at first
    first = Job(cluster, ingest, tmp_path, told)
    first.until(lambda: max(weights(ingest).values(), default=0) >= 0.05)
    ingest.command = "stop"
    assert first.end()["state"] == "stopped"
    seen = weights(ingest)
    steps = sorted(seen)
    assert [seen[step] for step in steps[:3]] == [0, 0, 0]
    said = [e["text"] for e in ingest.of_kind("log") if "Reward curriculum" in e["text"]]
    assert "length ramp in, up to a weight of 0.3" in said[0]
    assert sum("ramp in" in text for text in said) == 1, "however many steps the stop let pass"
    values = [e["values"] for e in ingest.of_kind("metrics")]
    for name in ("exact_answer", "length", "outcome", "process"):
        assert any(f"reward/{name}" in one for one in values)
    groups: dict[str, set[float | None]] = {}
    for one in trained(ingest):
        groups.setdefault(one.group_id, set()).add(one.reward.process_weight)
        assert one.reward.value == pytest.approx(sum(step.reward or 0.0 for step in one.steps))
    assert all(len(found) == 1 for found in groups.values()), "a group has one weight"
    assert max(weight or 0.0 for found in groups.values() for weight in found) > 0
    last = ingest.of_kind("checkpoint")[-1]["step"]

    ingest.forget()
    told["stages"][2]["steps"] = last + 2
    assert Job(cluster, ingest, tmp_path, told, number=2).end()["state"] == "succeeded"
    again = weights(ingest)
    assert sorted(again) == [SFT_STEPS + last + 1, SFT_STEPS + last + 2]
    before, after = seen[SFT_STEPS + last], again[SFT_STEPS + last + 1]
    assert after in (pytest.approx(before), pytest.approx(before + 0.03)), "held, or a step on"
    assert not [e for e in ingest.of_kind("log") if "steady" in e["text"]]


def test_a_run_whose_groups_all_fail_ends_and_says_what_to_change(cluster, ingest, tmp_path):
    told = spec()
    told["reward"]["terms"] = [{"kind": "exact_answer", "weight": 1.0}]
    told["stages"][2]["refill_rounds"] = 2
    told["stages"][1]["steps"] = 2  # too few to answer anything
    end = Job(cluster, ingest, tmp_path, told).end()
    assert end["state"] == "failed"
    assert end["reason"].startswith("Step 1 found no 3 groups that teach in 2 rounds of sampling")
    assert "all failed" in end["reason"] and "easier tasks (hops)" in end["reason"]
    assert [e["text"] for e in ingest.of_kind("log") if e["level"] == "error"] == [end["reason"]]
    held = ingest.of_kind("pool")[-1]
    gone = held["consumed"] + sum(held["discarded"].values())
    assert held["produced"] == gone + held["waiting"] + held["leased"]
    assert held["discarded"]["all_failed"] >= 3
