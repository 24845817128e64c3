"""What a run must have told of its tokens and of its running episodes."""

import math

import pytest

from engine.records.shards import read_trajectory
from engine.records.trained import StoredTrained
from engine.records.trajectory import Trajectory
from tests.engine.telemetry.ingest_server import IngestServer


def stored_trajectories(ingest: IngestServer) -> dict[str, Trajectory]:
    """By id, as they came in shards."""
    found = {}
    for event in ingest.of_kind("trajectories"):
        shard = ingest.blobs[event["shard"]]
        for row in event["rows"]:
            part = shard[row["offset"] : row["offset"] + row["length"]]
            found[row["id"]] = read_trajectory(part)
    return found


def assert_told_of_tokens(ingest: IngestServer) -> None:
    """Training told of every stored trajectory of its batches, and of the tokens in its loss."""
    stored = stored_trajectories(ingest)
    told = [(event, row) for event in ingest.of_kind("trained") for row in event["rows"]]
    assert {row["trajectory"] for _, row in told} <= set(stored)
    trained = [(event, row) for event, row in told if not row["left_out"]]
    assert trained
    for event, row in trained:
        data = ingest.blobs[event["shard"]][row["offset"] : row["offset"] + row["length"]]
        source = StoredTrained(lambda at, size, d=data: d[at : at + size], len(data))
        (segment,) = stored[row["trajectory"]].segments
        part = source.part(0, 0, len(segment.ids))
        assert [value is not None for value in part["advantage"]] == segment.loss_mask
        for kept, logprob, weight, behaviour in zip(
            segment.loss_mask, part["logprob"], part["weight"], segment.logprobs, strict=True
        ):
            if kept:
                assert weight == pytest.approx(math.exp(logprob - behaviour), rel=1e-3)


def assert_told_of_episodes(ingest: IngestServer) -> None:
    """Turns of a few episodes came while they ran, and they are those that were stored."""
    stored = stored_trajectories(ingest)
    turns = ingest.of_kind("turns")
    ended = {e["episode"]["trajectory"]: e["end"] for e in turns if e["end"]}
    assert ended
    assert any(event["rows"] for event in ingest.of_kind("playing"))
    for name in set(ended) & set(stored):
        published = [
            turn["text"]
            for event in turns
            if event["episode"]["trajectory"] == name
            for turn in event["turns"]
        ]
        assert published == [step.text for step in stored[name].steps]
        assert ended[name]["reward"] == stored[name].reward.value
