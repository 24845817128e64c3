"""The command line on everything that `up` starts: a run learns, and its results come home."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import caravan.models  # noqa: F401  (makes transformers know the model)
from workers.local.places import CHECKOUT
from workers.local.scratch import scratch_stack
from workers.local.stack import Stack

pytestmark = pytest.mark.stack
LIMIT_S = 600


@pytest.fixture(scope="module")
def whole() -> Iterator[Stack]:
    with scratch_stack() as stack:
        yield stack


def test_a_run_is_launched_watched_and_pulled(whole: Stack, tmp_path: Path) -> None:
    watched = _command(whole, "launch", str(CHECKOUT / "recipes/smoke.yaml"), "--watch")
    assert watched.returncode == 0, watched.stdout + watched.stderr
    run_id = watched.stdout.split()[0]
    stages = ("synthesise", "sft", "rl")
    assert all(stage in watched.stdout for stage in stages)
    pulled = _json(whole, "checkpoints", "pull", run_id, "--to", str(tmp_path / "pulled"))
    model = AutoModelForCausalLM.from_pretrained(pulled["folder"])
    with torch.no_grad():
        assert torch.isfinite(model(torch.tensor([[1, 2, 3]])).logits).all()
    judge = ["evaluate", run_id, "--tasks", "quick", "--trials", "2", "--temperature", "1"]
    judged = _command(whole, *judge, "--watch")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    (own,) = _json(whole, "runs", f"id:{judged.stdout.split()[0]}")
    assert own["parent_id"] == run_id
    assert own["headline"]["eval/completion_rate"] >= 0
    tried = _json(whole, "try", run_id, "--task", "1")
    assert (tried["purpose"], tried["success"]) == ("evaluate", tried["reward"] == 1.0)
    asked = _command(whole, "try", run_id, "--question", tried["prompt"], "--answer", "nowhere")
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "not solved" in asked.stdout and "/trajectories/" in asked.stdout
    longer = ["--set", "stages.1.steps=3", "--set", "stages.1.optimizer.warmup_steps=1"]
    forked = _command(whole, "fork", run_id, *longer, "--watch")
    assert forked.returncode == 0, forked.stdout + forked.stderr
    export = ["trajectories", "export", run_id, "--purpose", "train"]
    exported = _json(whole, *export, "--to", str(tmp_path / "out.jsonl"))
    assert exported["trajectories"] > 0 and exported["unreadable"] == 0
    line = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    segment = line["segments"][0]
    assert len(segment["ids"]) == len(segment["logprobs"]) == len(segment["versions"]) > 0


def test_a_run_is_stopped_and_resumed(whole: Stack) -> None:
    run_id = _json(whole, "launch", "smoke")["id"]
    assert _json(whole, "stop", run_id)["state"] in ("stopping", "stopped")
    assert _command(whole, "watch", run_id).returncode == 1
    assert _json(whole, "resume", run_id)["state"] == "queued"
    assert _command(whole, "watch", run_id).returncode == 0
    (found,) = _json(whole, "runs", f"id:{run_id}")
    assert found["state"] == "succeeded"


def _json(stack: Stack, *arguments: str) -> Any:
    done = _command(stack, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _command(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = "from caravan.commands import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={"CARAVAN_HOME": str(stack.places.home), "PYTHONPATH": str(CHECKOUT / "client")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_a_recipe_is_tried_and_swept(whole: Stack, tmp_path: Path) -> None:
    """A dry run says what worked; a sweep's trials are launched, judged at a rung and compared."""
    smoke = str(CHECKOUT / "recipes/smoke.yaml")
    tried = _command(whole, "launch", smoke, "--dry-run")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "The dry run passed." in tried.stdout
    assert tried.stdout.count("one step is trained") == 2
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"""
name: rates
spec: {smoke}
overrides: {{stages.1.steps: 20, stages.2.steps: 2, stages.2.dynamic_sampling: false}}
method: tpe
space:
  - {{kind: loguniform, path: stages.1.optimizer.lr, low: 1e-4, high: 1e-2}}
budget: {{trials: 2}}
at_once: 2
halving: {{min_steps: 20, factor: 2}}
"""
    )
    sweep = _json(whole, "sweep", "create", str(file))["id"]
    deadline = time.monotonic() + LIMIT_S
    while (found := _json(whole, "sweep", "show", sweep))["state"] == "running":
        assert time.monotonic() < deadline, found
        time.sleep(2)
    assert found["state"] == "finished", found
    told = [(trial["state"], trial["message"]) for trial in found["trials"]]
    assert {state for state, _ in told} <= {"complete", "pruned"}, told
    assert [len(trial["rungs"]) > 0 for trial in found["trials"]] == [True, True]
    assert found["best_trial"]["value"] >= 0
    assert len({trial["params"]["stages.1.optimizer.lr"] for trial in found["trials"]}) == 2
