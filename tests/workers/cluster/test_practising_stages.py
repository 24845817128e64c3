"""Stages that practise, on a real Ray: repair by preference, rejection sampling, resuming."""

import json

import pytest

from engine.spec import load_spec
from tests.workers.cluster.running import SPEC, Job, series

pytestmark = pytest.mark.stack

# A little training, so that calls go wrong in their details.
STAGES = """stages:
  - {kind: synthesise, tasks: {"1": 60}, demonstrations: {"1": 1500}, made_up_share: 0.5}
  - kind: sft
    steps: 120
    batch_size: 32
    optimizer: {kind: muon, lr: 0.004, warmup_steps: 5}
  - kind: dpo
    practice: {hops: [1], tasks: 40, attempts: 3}
    judged_tasks: 12
    own_tokens: first
    rpo_weight: 0.1
    batch_size: 8
    steps: DPO_STEPS
    optimizer: {warmup_steps: 1}
  - kind: sft
    source: accepted
    practice: {hops: [1], tasks: 20, attempts: 2}
    steps: 2
    batch_size: 4
    optimizer: {warmup_steps: 1}
rollout: {slots: 64}
"""


def spec(stages: str, dpo_steps: int) -> dict:
    stages = stages.replace("DPO_STEPS", str(dpo_steps))
    head, _, rest = SPEC.partition("stages:")
    text = head + stages + rest.partition("rollout: {slots: 16}\n")[2]
    text = text.replace("max_turn_tokens: 12", "max_turn_tokens: 24")
    found, problems = load_spec(text)
    assert found is not None, problems
    return found.model_dump(mode="json")


@pytest.fixture
def start(cluster, ingest, tmp_path):
    def start(number: int = 1, stages: str = STAGES, dpo_steps: int = 4) -> Job:
        return Job(cluster, ingest, tmp_path, spec(stages, dpo_steps), number)

    yield start
    cluster.stop_all()


def test_own_errors_are_unlearned_and_own_successes_learned_also_over_a_resume(
    start, ingest, tmp_path
):
    job = start(dpo_steps=100_000)
    job.until(lambda: series(ingest, "dpo/loss"), timeout_s=240)
    ingest.command = "stop"
    assert job.end()["state"] == "stopped", job.log()
    last = ingest.of_kind("checkpoint")[-1]
    assert last["stage"] == 2
    practice = tmp_path / "storage/practice/stage-2"
    played = {path: path.read_bytes() for path in (practice / "played").iterdir()}
    reference = (practice / "reference.json").read_bytes()
    made = json.loads((practice / "summary.json").read_text())
    assert made["pairs"] > 0
    assert made["played"] == 120
    assert sum(one.get("pairs", 0) for one in made["classes"].values()) == made["pairs"]

    ingest.forget()
    again = start(number=2, dpo_steps=last["step"] + 2)
    end = again.end(timeout_s=240)
    assert end["state"] == "succeeded", again.log()
    assert {path: path.read_bytes() for path in (practice / "played").iterdir()} == played
    assert (practice / "reference.json").read_bytes() == reference, "of the stage's start"
    end_of_stage = 120 + last["step"] + 2
    assert sorted(series(ingest, "dpo/loss")) == [end_of_stage - 1, end_of_stage]
    for name in (
        "dpo/margin", "dpo/accuracy", "dpo/rewards_chosen", "dpo/rewards_rejected",
        "dpo/logps_chosen", "dpo/chosen_change", "sft/acceptance_rate", "sft/prompts_kept",
        "sft/tokens_per_prompt",
    ):  # fmt: skip
        assert series(ingest, name), name
    assert sorted(series(ingest, "dpo/error_rate")) == [120, end_of_stage], "before and after"
    done = {e["index"]: e["summary"] for e in ingest.of_kind("stage") if e["state"] == "done"}
    assert done[2]["faults_before"]["trajectories"] == done[2]["faults_after"]["trajectories"] == 12
    assert done[2]["completion_rate"] >= 0
    assert done[3]["played"] == 40
    assert 0 <= done[3]["acceptance_rate"] <= 1
    finals = [e["stage"] for e in ingest.of_kind("checkpoint") if e["final"]]
    assert finals == [2, 3]


def test_a_stage_without_anything_to_learn_ends_at_once_and_says_so(start, ingest):
    untrained = STAGES.replace("steps: 120", "steps: 1").replace(
        "warmup_steps: 5", "warmup_steps: 1"
    )
    job = start(stages=untrained)
    assert job.end(timeout_s=240)["state"] == "succeeded", job.log()
    said = [e["text"] for e in ingest.of_kind("log")]
    assert any("Stage 2 (dpo) ends at once" in text for text in said), said
    assert any("Stage 3 (sft) ends at once: no rollout was accepted." in text for text in said)
    assert not series(ingest, "dpo/loss")
    finals = [e["stage"] for e in ingest.of_kind("checkpoint") if e["final"]]
    assert finals == [1, 2, 3], "a later stage can begin with its weights"
