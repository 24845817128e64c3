"""The driver on a real Ray: all stages, wishes, faults, crashes and outages."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from engine.pool.wal import FolderStore, Wal
from engine.records.shards import read_trajectory
from tests.engine.telemetry.ingest_server import IngestServer
from tests.workers.cluster.running import Job, series, spec
from tests.workers.cluster.told import (
    assert_told_of_episodes,
    assert_told_of_tokens,
    stored_trajectories,
)

pytestmark = pytest.mark.stack

RL = 2  # index of the stage
FAULTS = Path(__file__).parent / "faults"


@pytest.fixture
def start(cluster, ingest, tmp_path):
    """Starts attempts of one run."""

    def start(rl_steps: int = 5, number: int = 1, **environment: str) -> Job:
        return Job(cluster, ingest, tmp_path, spec(rl_steps), number, environment)

    yield start
    cluster.stop_all()


def rl_step(ingest: IngestServer) -> int:
    return max(series(ingest, "train/loss"), default=6) - 6


def assert_pool_conserves(ingest: IngestServer) -> None:
    assert ingest.of_kind("pool")
    for held in ingest.of_kind("pool"):
        gone = held["consumed"] + sum(held["discarded"].values())
        assert held["produced"] == gone + held["waiting"] + held["leased"]


def test_a_run_goes_through_its_stages_though_ingest_fails_meanwhile(start, ingest, tmp_path):
    job = start()
    job.until(lambda: series(ingest, "sft/loss"))
    ingest.behave = lambda path, body: (503, {})
    ingest.until(lambda: len(ingest.calls) > 0 and ingest.calls[-1][0] == "heartbeat")
    time.sleep(3)  # of outage
    ingest.behave = lambda path, body: None
    end = job.end()
    assert (end["state"], end["reason"]) == ("succeeded", ""), job.log()

    stages = [(e["index"], e["name"]) for e in ingest.of_kind("stage") if e["state"] == "done"]
    assert stages == [(0, "synthesise"), (1, "sft"), (2, "rl")]
    assert sorted(series(ingest, "sft/loss")) == [1, 2, 3, 4, 5, 6]
    assert sorted(series(ingest, "train/loss")) == [7, 8, 9, 10, 11]
    for name in (
        "train/grad_norm", "train/entropy", "train/clip_fraction", "train/importance_weight_mean",
        "train/importance_weight_max", "train/ess", "train/kl_sampler", "train/lr",
        "train/step_s", "train/tokens", "pool/staleness_mean", "pool/staleness_max",
        "pool/wait_s", "rollout/reward_mean", "rollout/success", "rollout/length",
        "rollout/trajectories_per_s", "rollout/tokens_per_s", "rollout/zero_variance_groups",
        "time/busy_share_rollout", "time/busy_share_trainer", "train/tree_token_ratio",
        "train/tree_saved_flops_share", "train/tree_saved_memory_share",
    ):  # fmt: skip
        assert series(ingest, name), name
    assert sorted(series(ingest, "eval/completion_rate")) == [6, 8, 10, 11]
    assert [event["step"] for event in ingest.of_kind("tree")] == [7, 8, 10]
    assert max(series(ingest, "pool/staleness_max").values()) <= 2
    assert_pool_conserves(ingest)
    assert_told_of_tokens(ingest)
    assert_told_of_episodes(ingest)
    assert [e["tasks"] for e in end["summary"]["evaluations"]] == [12, 10, 10, 12]
    assert "gain_low" in end["summary"]
    assert not list((tmp_path / "spool").rglob("*.jsonl")), "everything arrived"

    (row, *_) = [
        {**row, "shard": event["shard"]}
        for event in ingest.of_kind("trajectories")
        for row in event["rows"]
        if row["purpose"] == "evaluate"
    ]
    data = ingest.blobs[row["shard"]][row["offset"] : row["offset"] + row["length"]]
    assert read_trajectory(data).id == row["id"]

    final = [e for e in ingest.of_kind("checkpoint") if e["final"]][-1]
    folder = tmp_path / "storage" / final["path"]
    assert {p.name for p in folder.iterdir()} == set(final["files"])
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import engine.models.hybrid  # noqa: F401  (registers the model)

    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 0
    assert AutoTokenizer.from_pretrained(folder).eos_token == "<|end|>"


def test_a_stopped_run_goes_on_from_its_checkpoint_with_higher_versions(start, ingest, tmp_path):
    job = start(rl_steps=200)
    job.until(lambda: rl_step(ingest) >= 3)
    ingest.command = "stop"
    end = job.end()
    assert end["state"] == "stopped"
    last = ingest.of_kind("checkpoint")[-1]
    assert last["stage"] == RL
    state = Wal(FolderStore(tmp_path / "storage/pool/stage-2"), 99).recover(last["step"])
    assert state.conserves()
    assert state.consumed == 3 * last["step"]

    ingest.forget()
    assert not [e for e in ingest.of_kind("log") if "runs code" in e["text"]]
    again = start(rl_steps=last["step"] + 2, number=2, CARAVAN_CODE_VERSION="newer")
    assert again.end()["state"] == "succeeded", again.log()
    (told,) = [e for e in ingest.of_kind("log") if "runs code" in e["text"]]
    assert (told["level"], "newer" in told["text"]) == ("warning", True)
    redeemed = [body["code_version"] for path, body in ingest.calls if path == "tickets/redeem"]
    assert redeemed == ["newer"]
    assert sorted(series(ingest, "train/loss")) == [6 + last["step"] + 1, 6 + last["step"] + 2]
    versions = [e["trainer_version"] for e in ingest.of_kind("pool")]
    assert min(versions) > last["version"]
    assert min(e["rollout_step"] for e in ingest.of_kind("clock")) > 0, "axes go on"
    produced = [e["produced"] for e in ingest.of_kind("pool")]
    assert produced[0] >= state.produced, "the pool goes on with what it held"
    assert_pool_conserves(ingest)


def test_files_of_another_format_fail_the_attempt_with_a_sentence(start, ingest, tmp_path):
    (tmp_path / "storage").mkdir()
    written = {"format": 0, "code": "older"}
    (tmp_path / "storage/format.json").write_text(json.dumps(written))
    end = start(number=2).end()
    assert end["state"] == "failed"
    assert "have format 0" in end["reason"]
    assert "resume it with code older" in end["reason"]
    assert json.loads((tmp_path / "storage/format.json").read_text()) == written


def test_a_killed_driver_takes_its_actors_along_and_loses_nothing(start, ingest, tmp_path):
    job = start(rl_steps=200)
    job.until(lambda: rl_step(ingest) >= 3)
    actors = [p for name in ("RolloutActor", "TrainerActor") for p in job.processes(name)]
    assert len(actors) == 2
    job.kill("driver")
    assert job.end(timeout_s=30) == {}, "it had no last word"
    deadline = time.monotonic() + 30
    while any(process.is_running() for process in actors):
        assert time.monotonic() < deadline, "actors outlive their driver"
        time.sleep(0.1)
    latest = json.loads((tmp_path / "storage/checkpoints/attempt-1/latest.json").read_text())
    state = Wal(FolderStore(tmp_path / "storage/pool/stage-2"), 99).recover(latest["step"])
    assert state.conserves()
    assert state.consumed == 3 * latest["step"]
    assert not state.leased

    ingest.forget()
    again = start(rl_steps=latest["step"] + 1, number=2)
    assert again.end()["state"] == "succeeded", again.log()
    assert min(e["trainer_version"] for e in ingest.of_kind("pool")) > state.version
    assert_pool_conserves(ingest)


def test_a_killed_trainer_fails_the_run_within_seconds(start, ingest, tmp_path):
    job = start(rl_steps=200)
    job.until(lambda: rl_step(ingest) >= 1)
    job.kill("TrainerActor")
    killed_at = time.monotonic()
    end = job.end(timeout_s=40)
    assert time.monotonic() - killed_at < 30
    assert end["state"] == "failed"
    assert end["reason"].startswith("A trainer died.")
    assert any("TrainerActor" in e["text"] for e in ingest.of_kind("log") if e["level"] == "error")
    assert not list((tmp_path / "spool").rglob("*.jsonl")), "what it left was shipped for it"


def test_a_killed_rollout_worker_is_replaced_and_each_of_its_groups_counts_once(
    start, ingest, tmp_path
):
    job = start(rl_steps=9)
    for step in (1, 4):
        job.until(lambda step=step: rl_step(ingest) >= step)
        job.kill("RolloutActor")
    end = job.end()
    assert (end["state"], end["reason"]) == ("succeeded", ""), job.log()
    assert sorted(series(ingest, "train/loss")) == list(range(7, 16))
    assert [e["tasks"] for e in end["summary"]["evaluations"]] == [12, 10, 10, 10, 10, 12]

    warned = [e["text"] for e in ingest.of_kind("log") if e["level"] == "warning"]
    assert len(warned) == 2, warned
    assert all(text.startswith("rollout-0 died and is replaced: Ray says: ") for text in warned)
    assert max(series(ingest, "rollout/workers_lost").values()) == 2
    assert_pool_conserves(ingest)
    state = Wal(FolderStore(tmp_path / "storage/pool/stage-2"), 99).recover(9)
    assert state.consumed == 3 * 9
    assert state.produced == state.next_ticket - 1 - len(state.unfinished), "once each"
    stored = stored_trajectories(ingest)  # without those of the last seconds before a death
    steps: dict[str, set[int]] = {}
    for event in ingest.of_kind("trained"):
        for row in event["rows"]:
            if row["trajectory"] in stored:
                steps.setdefault(stored[row["trajectory"]].group_id, set()).add(row["step"])
    assert steps
    assert all(len(found) == 1 for found in steps.values()), "no group is trained on twice"
    assert_told_of_episodes(ingest)
    assert {e["source"] for e in ingest.of_kind("spans")} >= {"rollout-0", "trainer-0"}
    assert not list((tmp_path / "spool").rglob("*.jsonl")), "what they left was shipped for them"


@pytest.mark.parametrize("where", ["trainer", "rollout", "pool"])
def test_what_an_actor_raises_fails_the_run_with_its_traceback(start, ingest, where):
    checkout = Path(__file__).parents[3]
    path = os.pathsep.join([str(FAULTS), str(checkout), str(checkout / "client")])
    job = start(PYTHONPATH=path, CARAVAN_TEST_FAULT=where)
    end = job.end()
    assert end["state"] == "failed"
    assert f"broken on purpose: {where}" in end["reason"]
    errors = [e["text"] for e in ingest.of_kind("log") if e["level"] == "error"]
    assert "Traceback" in errors[0]
    assert "faults/sitecustomize.py" in errors[0]


def test_pause_latches_hold_and_let_go(start, ingest):
    job = start(rl_steps=200)
    job.until(lambda: rl_step(ingest) >= 1)
    ingest.pause_training = True
    count = len(ingest.calls)
    job.until(lambda: [p for p, _ in ingest.calls[count:]].count("heartbeat") >= 3)
    held = rl_step(ingest)
    count = len(ingest.calls)
    job.until(lambda: [p for p, _ in ingest.calls[count:]].count("heartbeat") >= 3)
    assert rl_step(ingest) == held, "no step while training is paused"

    ingest.pause_training, ingest.pause_rollouts = False, True
    count = len(ingest.calls)
    job.until(lambda: [p for p, _ in ingest.calls[count:]].count("heartbeat") >= 5)
    produced = ingest.of_kind("pool")[-1]["produced"]
    count = len(ingest.calls)
    job.until(lambda: [p for p, _ in ingest.calls[count:]].count("heartbeat") >= 4)
    assert ingest.of_kind("pool")[-1]["produced"] == produced, "nothing starts while paused"

    ingest.pause_rollouts = False
    job.until(lambda: rl_step(ingest) > held + 1)
    ingest.command = "interrupt"
    assert job.end()["state"] == "interrupted"


def test_a_revoked_attempt_leaves_without_a_word(start, ingest):
    job = start(rl_steps=200)
    job.until(lambda: series(ingest, "sft/loss"))
    ingest.behave = lambda path, body: (409, {"detail": "attempt 2 runs"})
    assert job.end(timeout_s=60) == {}


def test_two_ranks_and_two_workers_train_together_over_remote_storage(cluster, ingest, tmp_path):
    both = spec(rl_steps=2)
    both["trainer"]["workers"] = both["rollout"]["workers"] = 2
    (local := tmp_path / "local").mkdir()
    job = Job(cluster, ingest, tmp_path, both, 1, {"TMPDIR": str(local)}, scheme="local://")
    assert job.end(timeout_s=240)["state"] == "succeeded", job.log()
    final = ingest.of_kind("checkpoint")[-1]
    stored = {path.name for path in (tmp_path / "storage" / final["path"]).iterdir()}
    assert stored == set(final["files"])
    assert not list(local.rglob("model.safetensors")), "no copy fills the machine's own disk"
    assert sorted(series(ingest, "train/loss")) == [7, 8]
    assert_told_of_tokens(ingest)
    assert {e["source"] for e in ingest.of_kind("playing")} == {"rollout-0", "rollout-1"}
    assert {e["source"] for e in ingest.of_kind("spans")} >= {
        "rollout-0", "rollout-1", "trainer-0", "trainer-1",
    }  # fmt: skip


def test_a_terminated_job_still_says_how_it_ended(start, ingest, cluster):
    job = start(rl_steps=200, RAY_JOB_STOP_WAIT_TIME_S="10")
    job.until(lambda: series(ingest, "sft/loss"))
    (driver, *_) = job.processes("driver")
    cluster.call("POST", f"{job.id}/stop")
    end = job.end(timeout_s=40)
    assert end["state"] == "stopped"
    assert "Ray ended the job" in end["reason"]
    assert not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE
