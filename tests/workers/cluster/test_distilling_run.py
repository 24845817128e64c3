"""A run on a real Ray in which two experts teach one student, stopped and resumed on the way."""

from typing import Any

import pytest

from engine.spec import load_spec
from tests.workers.cluster.running import SPEC, Job, series

pytestmark = pytest.mark.stack

STAGES = """
stages:
  - {kind: synthesise, tasks: {"1": 40, "2": 40}, demonstrations: {"1": 60, "2": 60}}
  - {kind: sft, steps: 4, batch_size: 8, optimizer: {warmup_steps: 1}}
  - {kind: sft, steps: 2, batch_size: 8, optimizer: {warmup_steps: 1}}
  - kind: sft
    steps: 2
    batch_size: 8
    start_from: 1
    lora: {rank: 3}
    optimizer: {warmup_steps: 1}
  - kind: opd
    start_from: 1
    teachers: [{stage: 2, categories: [1 hop]}, {stage: 3, categories: [2 hops]}]
    off_policy_share: 0.25
    lora: {rank: 2, alpha: 4}
    hops: [1, 2]
    prompts_per_step: 4
    group_size: 1
    steps: OPD_STEPS
    optimizer: {warmup_steps: 1}
"""
OPD, BEFORE = 4, 8  # index of the stage, trainer steps before it


def spec(steps: int) -> dict[str, Any]:
    head, _, tail = SPEC.partition("stages:\n")
    rest = tail[tail.index("rollout:") :].replace("hops: [1]", "hops: [1, 2]")
    found, problems = load_spec(head + STAGES.replace("OPD_STEPS", str(steps)) + rest)
    assert found is not None, problems
    return found.model_dump(mode="json")


def test_two_experts_teach_a_student_that_goes_on_after_a_stop(cluster, ingest, tmp_path):
    def start(steps: int, number: int) -> Job:
        return Job(cluster, ingest, tmp_path, spec(steps), number)

    job = start(500, 1)
    job.until(lambda: max(series(ingest, "distil/divergence"), default=0) >= BEFORE + 2)
    ingest.command = "stop"
    assert job.end()["state"] == "stopped", job.log()
    saved = {e["stage"]: e for e in ingest.of_kind("checkpoint") if e["final"]}
    path = "checkpoints/attempt-1/stage-{}-step-{:06d}".format
    assert [saved[at]["parent"] for at in (1, 2, 3)] == ["", path(1, 4), path(1, 4)]
    last = ingest.of_kind("checkpoint")[-1]
    assert (last["stage"], last["parent"]) == (OPD, path(1, 4))
    assert {"model.safetensors", "adapter/adapter_model.safetensors"} <= set(last["files"])
    begun = [e["text"] for e in ingest.of_kind("log") if "begins with" in e["text"]]
    assert f"Stage 3 (sft) begins with {path(1, 4)}." in begun
    shared = "The teacher of stage 3 is held as adapters alone, on the student's weights."
    assert [e["text"] for e in ingest.of_kind("log") if "The teacher of" in e["text"]] == [shared]

    ingest.forget()
    end = start(last["step"] + 2, 2)
    word = end.end()
    assert word["state"] == "succeeded", end.log()
    assert shared in [e["text"] for e in ingest.of_kind("log")]
    steps = [BEFORE + last["step"] + 1, BEFORE + last["step"] + 2]
    for name in (
        "distil/divergence", "distil/divergence/stage-2", "distil/divergence/stage-3",
        "distil/divergence/1 hop", "distil/divergence/2 hops", "distil/agreement",
        "distil/entropy_gap", "distil/far_share", "train/loss",
    ):  # fmt: skip
        assert set(series(ingest, name)) <= set(steps) and series(ingest, name), name
    assert sorted(series(ingest, "distil/divergence")) == steps
    (done,) = [e for e in ingest.of_kind("stage") if e["state"] == "done" and e["index"] == OPD]
    found = done["summary"]["by_category"]
    assert {name: list(one["teachers"]) for name, one in found.items()} == {
        "1 hop": ["stage-2"],
        "2 hops": ["stage-3"],
    }
    assert all(0 <= one["start"] <= 1 for one in found.values())
    assert series(ingest, "distil/completion_of_stage-2/1 hop")
    assert (word["summary"]["gain_from_stage"], word["summary"]["gain_to_stage"]) == (1, OPD)
