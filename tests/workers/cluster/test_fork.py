"""A run that starts from another run's checkpoint, on a real Ray: it judges, and it trains on."""

import json
import shutil

import pytest

from tests.workers.cluster.running import Job, spec
from workers.cluster import synthesised

pytestmark = pytest.mark.stack


def losses(ingest):
    return [e["values"]["sft/loss"] for e in ingest.of_kind("metrics") if "sft/loss" in e["values"]]


def test_it_judges_and_trains_on_from_a_run_that_is_gone(cluster, ingest, tmp_path):
    told = spec()

    def play(name, *stages, origin=None):
        ingest.forget()
        here = {**told, "stages": [told["stages"][0], *stages]}
        job = Job(cluster, ingest, tmp_path / name, here, origin=origin)
        end = job.end()
        assert (end["state"], end["reason"]) == ("succeeded", ""), job.log()
        return end

    cold = told["stages"][1]
    play("parent", cold)
    first = losses(ingest)
    final = ingest.of_kind("checkpoint")[-1]
    origin = {
        "id": "ckp_1", "run_id": "run_parent", "storage": str(tmp_path / "parent/storage"),
        "checkpoint_path": final["path"], "stage": 1, "step": 6, "version": final["version"],
    }  # fmt: skip

    judge = {"kind": "evaluate", "tasks": "quick", "number": 5, "trials": 3, "temperature": 1.0}
    end = play("judged", judge, origin=origin)
    (done,) = ingest.of_kind("evaluation")
    assert (done["tasks"], done["trials"], done["temperature"]) == ("quick", 3, 1.0)
    assert set(done["demonstrations"]) == {"loss", "token_accuracy"}
    report = done["report"]
    assert (report["tasks"], report["trajectories"]) == (5, 15)
    assert [one["k"] for one in report["passes"]] == [1, 2, 3]
    assert (tmp_path / "judged/storage" / done["path"]).exists()
    sent = ingest.of_kind("trials")
    assert (done["parts"], [one["path"] for one in sent]) == (1, [done["path"]])
    assert [len(row["results"]) for row in sent[0]["rows"]] == [3] * 5
    assert [(e["index"], e["name"]) for e in ingest.of_kind("stage") if e["state"] == "done"] == [
        (0, "synthesise"),
        (1, "evaluate"),
    ]
    names = {name for e in ingest.of_kind("metrics") for name in e["values"]}
    assert {"eval/completion_rate", "eval/pass_at_3", "eval/pass_hat_3"} <= names
    assert end["summary"]["evaluations"][0]["trials"] == 3
    copied = tmp_path / "judged/storage/origin/checkpoint/model.safetensors"
    parents = tmp_path / "parent/storage" / final["path"] / "model.safetensors"
    assert copied.read_bytes() == parents.read_bytes()

    quick = synthesised.tasks(tmp_path / "judged/storage" / synthesised.FOLDER, "quick")
    for name, stage, task in (
        ("tried", {"tasks": "quick", "position": 3}, quick[3].id),
        ("asked", {"question": quick[0].prompt, "answer": quick[0].answer}, "own question"),
    ):
        play(name, {"kind": "evaluate", **stage}, origin=origin)
        (done,) = ingest.of_kind("evaluation")
        kept = json.loads((tmp_path / name / "storage" / done["path"]).read_text())
        assert [one["task_id"] for one in kept["outcomes"]] == [task]

    origin["storage"] = str(tmp_path / "judged/storage")
    origin["checkpoint_path"] = "origin/checkpoint"
    shutil.rmtree(tmp_path / "parent/storage")
    play("trained", {**cold, "steps": 3}, judge, origin=origin)
    assert losses(ingest)[0] < 0.95 * first[0], "it does not begin from scratch"
    assert [e["trainer_step"] for e in ingest.of_kind("evaluation")] == [3, 3]
    names = {name for e in ingest.of_kind("metrics") for name in e["values"]}
    assert {"eval/completion_rate", "evaluate/completion_rate"} <= names
