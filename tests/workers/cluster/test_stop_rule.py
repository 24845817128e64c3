"""A stage that ends before its last step because the policy is good enough, on a real Ray."""

import pytest

from tests.engine.telemetry.ingest_server import IngestServer
from tests.workers.cluster.running import Job, spec

pytestmark = pytest.mark.stack

RL = 2
STEPS = 300


def final_steps(ingest: IngestServer) -> list[int]:
    return [e["step"] for e in ingest.of_kind("checkpoint") if e["final"] and e["stage"] == RL]


def test_it_ends_there_and_takes_no_other_step_when_it_is_resumed(cluster, ingest, tmp_path):
    """Any rate is at least 0: the first evaluation that is reported ends the stage."""
    told = spec(rl_steps=STEPS)
    told["stages"][RL]["stop_at_completion"] = 0.0
    first = Job(cluster, ingest, tmp_path, told)
    first.until(lambda: final_steps(ingest))
    ingest.command = "stop"
    first.end()
    (ended,) = final_steps(ingest)
    assert 2 <= ended < STEPS
    said = [e["text"] for e in ingest.of_kind("log") if "stop_at_completion" in e["text"]]
    assert len(said) == 1 and f"ends after {ended} of {STEPS} steps" in said[0]

    ingest.forget()
    second = Job(cluster, ingest, tmp_path, told, number=2)
    assert second.end()["state"] == "succeeded"
    assert not final_steps(ingest), "it was not trained again"
    done = [e for e in ingest.of_kind("stage") if e["state"] == "done" and e["index"] == RL]
    assert [(e["step"], e["steps"]) for e in done] == [(ended, ended)]
    assert done[0]["summary"]["step"] == ended
