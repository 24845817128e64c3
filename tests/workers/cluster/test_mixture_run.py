"""A run on a real Ray that reinforces a mixture of experts on two ranks, stopped and resumed."""

from typing import Any

import pytest
from safetensors.numpy import load_file

from engine.spec import load_spec
from tests.workers.cluster.running import SPEC, Job, series

pytestmark = pytest.mark.stack

EXPERTS = "vocab_size: 400, experts: 4, router_aux_weight: 0.01}"
SFT, RL, BEFORE = 1, 2, 6  # indices of the stages, trainer steps before the latter


def spec(steps: int) -> dict[str, Any]:
    text = SPEC.replace("vocab_size: 400}", EXPERTS).replace("RL_STEPS", str(steps))
    text = text.replace("    group_size: 4\n", "    group_size: 4\n    algorithm: cispo\n")
    found, problems = load_spec(text + "trainer: {workers: 2}\n")
    assert found is not None, problems
    return found.model_dump(mode="json")


def test_experts_learn_by_reinforcement_and_go_on_after_a_stop(cluster, ingest, tmp_path):
    def start(steps: int, number: int) -> Job:
        return Job(cluster, ingest, tmp_path, spec(steps), number)

    def weights(checkpoint: dict[str, Any]) -> dict[str, Any]:
        return load_file(tmp_path / "storage" / checkpoint["path"] / "model.safetensors")

    job = start(500, 1)
    job.until(lambda: max(series(ingest, "train/balancing_loss"), default=0) >= BEFORE + 2)
    ingest.command = "stop"
    assert job.end()["state"] == "stopped", job.log()
    drift = series(ingest, "train/kl_sampler")
    assert abs(drift[BEFORE + 1]) < 0.01  # what was sampled is what is trained, experts or not
    assert all(2 <= value < 4 for value in series(ingest, "train/balancing_loss").values())
    (taught,) = [e for e in ingest.of_kind("checkpoint") if e["stage"] == SFT and e["final"]]
    last = ingest.of_kind("checkpoint")[-1]
    assert last["stage"] == RL
    before, after = weights(taught), weights(last)
    for part in ("router.weight", "experts.gate_up_proj", "experts.down_proj"):
        moved = [
            name for name in after if name.endswith(part) and (after[name] != before[name]).any()
        ]
        assert len(moved) == 2, part

    ingest.forget()
    end = start(last["step"] + 2, 2)
    assert end.end()["state"] == "succeeded", end.log()
    steps = [BEFORE + last["step"] + 1, BEFORE + last["step"] + 2]
    assert sorted(series(ingest, "train/balancing_loss")) == steps
    assert max(map(abs, series(ingest, "train/kl_sampler").values())) < 0.1
