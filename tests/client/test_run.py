"""Reports of somebody's own trainer: all of it arrives, in order, through any outage."""

import io
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import caravan as package
from caravan import Client, Episode, RefusedError, Run, Trained, Turn, spooling
from caravan.commands.watch import Followed, panel, read_points
from tests.client.conftest import Caravan, as_json, outage
from workers.local.stack import Stack

LIMIT_S = 60.0


def until(true: Callable[[], Any], what: str) -> Any:
    """Wait for something that another process does."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {LIMIT_S} s")


def points(client: Client, run_id: str, name: str) -> list[tuple[int, Any]]:
    found = client.points(run_id, [name], after=0)["series"]
    return [(step, value) for series in found for step, _, value in series["points"]]


def test_it_reports_what_the_trainer_says(client: Client) -> None:
    with Run("told", experiment="own", config={"lr": 1e-3}, steps=3, tags=["t"]) as run:
        assert client.run(run.id)["state"] == "running"
        for step in (1, 2, 3):
            run.log({"loss": 1 / step, "odd name!": step}, step=step)
        run.log({"loss": math.nan})
        run.log({"reward": 0.5}, step=7, axis="rollout_step")
        run.message("half way", level="warning")
    found = client.run(run.id)
    assert (found["state"], found["step"], found["steps"]) == ("succeeded", 4, 3)
    assert found["spec"]["config"] == {"lr": 0.001}
    assert points(client, run.id, "loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, "NaN")]
    assert points(client, run.id, "odd name_") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert points(client, run.id, "reward") == [(7, 0.5)]
    assert client.http.get(f"/runs/{run.id}/logs")["items"][0]["text"] == "half way"
    assert spooling.unshipped() == []


def test_it_never_raises_into_training(client: Client) -> None:
    run = Run(experiment="clumsy")
    run.log({"loss": "high", "fine": 1.0})  # type: ignore[dict-item]
    run.log({})
    run.trajectory("?", [Turn("a", ids=[1, 2], logprobs=[0.0])], Episode(1.0, True))
    run.trajectory("?", [Turn("a")], Episode(1.0, True, stop_reason="tired"))
    run.group([None])  # type: ignore[list-item]
    run.checkpoint("no/such/folder", wait=True)
    assert run.finish()
    run.log({"late": 1.0})
    assert not run.finish()
    assert points(client, run.id, "fine") == [(1, 1.0)]
    gaps = {gap["what"]: gap["items"] for gap in client.http.get(f"/runs/{run.id}/gaps")}
    assert gaps["values that are no numbers"] == 1
    assert gaps["malformed trajectories"] == 3
    assert gaps["checkpoints that could not be uploaded"] == 1


def test_it_keeps_trajectories_by_their_turns(client: Client, caravan: Caravan) -> None:
    with Run(experiment="episodes") as run:
        turns = [
            Turn(
                "search it",
                tool="search",
                arguments={"name": "\u6771\u4eac"},
                result="found\x1b[2J",
                ids=[5, 6],
                logprobs=[-0.5, -0.25],
                result_ids=[7],
            ),
            Turn("done", answer="Tokyo", ids=[8], logprobs=[-0.125]),
        ]
        told = Episode(1.0, True, category="one", version=2, prompt_ids=[1, 2], group="g")
        run.trajectory("Where?", turns, told)
        run.trajectory("Where?", [Turn("no idea")], Episode(None, False, group="g"))
    result = as_json(caravan("trajectories", "export", run.id, "--to", "out.jsonl", "--json"))
    assert (result["trajectories"], result["unreadable"]) == (2, 0)
    both = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    good = next(one for one in both if one["success"])
    segment = good["segments"][0]
    assert segment["ids"] == [1, 2, 5, 6, 7, 8]
    assert segment["loss_mask"] == [False, False, True, True, False, True]
    assert segment["versions"] == [-1, -1, 2, 2, -1, 2]
    assert segment["logprobs"] == [0.0, 0.0, -0.5, -0.25, 0.0, -0.125]
    assert [(step["start"], step["stop"]) for step in good["steps"]] == [(2, 4), (5, 6)]
    assert good["steps"][0]["call"]["result"] == "found\x1b[2J"
    assert caravan("trajectories", "export", run.id, "--to", "out.jsonl").exit_code == 2
    only = caravan("trajectories", "export", run.id, "--success").stdout.splitlines()
    assert [json.loads(line)["id"] for line in only] == [good["id"]]
    assert caravan("trajectories", "export", run.id, "--purpose", "evaluate").stdout == ""
    export = ("trajectories", "export", "--to")
    said = caravan(*export, "out.parquet", run.id, "--format", "parquet", "--json")
    assert as_json(said)["bytes"] == Path("out.parquet").stat().st_size
    assert Path("out.parquet").read_bytes()[:4] == b"PAR1"
    one = ("--trajectory", good["id"])
    caravan(*export, "out.html", *one, "--format", "html", "--comments")
    assert "\u6771\u4eac" in Path("out.html").read_text("utf-8")
    assert [json.loads(caravan("trajectories", "export", *one).stdout)["id"]] == [good["id"]]


def test_it_tells_what_its_loss_saw_of_tokens(client: Client) -> None:
    turns = [Turn("a", tool="t", ids=[5, 6], logprobs=[-0.5, -0.25], result_ids=[7]),
             Turn("b", answer="b", ids=[8], logprobs=[-0.125])]  # fmt: skip
    with Run(experiment="saw") as run:
        run.log({"loss": 1.0}, step=4)
        made = run.trajectory("Where?", turns, Episode(1.0, True, version=2, prompt_ids=[1]))
        assert made is not None
        run.trained([Trained(made, advantages=[0.5, 0.5, -1.0], weights=[1, 2, math.inf])])
        run.trained([Trained(made, entropies=[0.1])])  # one number for three tokens: dropped, said
        run.trained([])
    first, second = (
        client.http.get(f"/trajectories/{made.id}/steps/{step}/trained") for step in (0, 1)
    )
    assert (first["records"][0]["step"], first["records"][0]["tokens"]) == (4, 3)
    assert first["columns"]["advantage"] == [0.5, 0.5]
    assert first["columns"]["entropy"] is None
    assert second["columns"]["advantage"] == [-1.0]
    assert second["columns"]["weight"] == ["Infinity"]
    gaps = {gap["what"]: gap["items"] for gap in client.http.get(f"/runs/{run.id}/gaps")}
    assert gaps == {"malformed trained tokens": 1}


def test_its_checkpoints_are_pulled_as_they_were(
    client: Client, caravan: Caravan, tmp_path: Path, stack: Stack
) -> None:
    folder = tmp_path / "saved"
    (folder / "inner").mkdir(parents=True)
    (folder / "model.bin").write_bytes(bytes(range(256)) * 150_000)  # three parts
    (folder / "inner/vocab.txt").write_text("a b")
    (folder / "empty.txt").touch()
    with Run(experiment="saved") as run:
        run.log({"loss": 1.0}, step=9)
        run.checkpoint(folder, version=4)
        run.checkpoint(folder, step=10, final=True, wait=True)
    newest = client.checkpoints(run.id)[0]
    assert (newest["step"], newest["final"], newest["policy_version"]) == (10, True, 10)
    result = as_json(caravan("checkpoints", "pull", run.id, "--to", "pulled", "--json"))
    assert result["checkpoint"] == newest["id"]
    for name in ("model.bin", "inner/vocab.txt", "empty.txt"):
        assert Path("pulled", name).read_bytes() == (folder / name).read_bytes()
    again = as_json(caravan("checkpoints", "pull", run.id, "--to", "pulled", "--json"))
    assert again["bytes"] == 0
    Path("pulled/empty.txt").write_text("mine")
    assert caravan("checkpoints", "pull", run.id, "--to", "pulled").exit_code == 2
    assert "final" in caravan("checkpoints", "list", run.id).stdout
    part = newest["files"]["inner/vocab.txt"]["sha256"]
    (stack.places.storage / "blobs" / part[:2] / part).write_text("b a")
    damaged = caravan("checkpoints", "pull", run.id, "--to", "other")
    assert damaged.exit_code == 3 and "another hash" in damaged.stderr
    assert not list(Path("other").rglob("*vocab*"))


def test_it_says_that_nothing_was_saved(caravan: Caravan) -> None:
    with Run(experiment="nothing") as run:
        run.log({"loss": 1.0})
    result = caravan("checkpoints", "pull", run.id)
    assert result.exit_code == 2 and "saved none yet" in result.stderr


def test_a_stop_on_the_page_reaches_the_trainer(client: Client) -> None:
    with Run(experiment="stopped") as run:
        assert not run.should_stop
        client.stop(run.id)
        until(lambda: run.should_stop, "the stop")
    assert client.run(run.id)["state"] == "stopped"


def test_a_training_that_raises_has_failed(client: Client, caravan: Caravan) -> None:
    with pytest.raises(ZeroDivisionError), Run(experiment="broken") as run:
        run.log({"loss": 1 / 0})
    found = client.run(run.id)
    assert found["state"] == "failed" and "ZeroDivisionError" in found["state_reason"]
    assert caravan("watch", run.id).exit_code == 1


def test_a_watch_follows_it_to_its_end(client: Client) -> None:
    run = Run(experiment="watched", steps=10)
    watch = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from caravan.commands import main; main()",
            "watch",
            run.id,
            "--json",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    assert json.loads(watch.stdout.readline())["state"] == "running"
    run.log({"eval/completion_rate": 0.5}, step=5)
    until(lambda: json.loads(watch.stdout.readline())["headline"], "a completion rate")
    run.finish()
    lines = [json.loads(line) for line in watch.stdout]
    assert watch.wait(LIMIT_S) == 0
    assert lines[-1]["state"] == "succeeded"


def test_it_outlives_an_outage(client: Client, stack: Stack) -> None:
    with Run(experiment="steady") as run:
        run.log({"loss": 0.0}, step=1)
        with outage(stack):
            for step in range(2, 500):
                run.log({"loss": float(step)}, step=step)
        run.log({"loss": 500.0}, step=500)
    assert points(client, run.id, "loss")[1:] == [(n, float(n)) for n in range(2, 501)]


def test_what_an_outage_kept_back_is_shipped_later(
    client: Client, caravan: Caravan, stack: Stack, tmp_path: Path
) -> None:
    run = Run(experiment="late")
    with outage(stack):
        run.log({"loss": 1.0}, step=1)
        run.trajectory("?", [Turn("a")], Episode(1.0, True))
        assert not run.finish(summary={"best": 1}, timeout_s=1.0)
        kept = caravan("sync", "--wait", "1")
        assert kept.exit_code == 3 and "is not reached" in kept.stdout
    secret = spooling.unshipped()[0] / "attempt.json"
    assert secret.stat().st_mode & 0o077 == 0
    outcome = as_json(caravan("sync", "--json"))
    assert [one["done"] for one in outcome] == [True]
    found = client.run(run.id)
    assert (found["state"], found["summary"]) == ("succeeded", {"best": 1})
    assert points(client, run.id, "loss") == [(1, 1.0)]
    assert caravan("sync").stdout == "Nothing waits on this machine.\n"


def test_a_process_that_dies_leaves_its_rest_to_sync(client: Client, caravan: Caravan) -> None:
    script = (
        "import os, caravan\n"
        "run = caravan.Run(experiment='killed')\n"
        "run.log({'loss': 1.0}, step=1)\n"
        "print(run.id, flush=True)\n"
        "os._exit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    run_id = done.stdout.strip()
    assert "interrupted" in caravan("sync").stdout
    assert client.run(run_id)["state"] == "interrupted"
    assert points(client, run_id, "loss") == [(1, 1.0)]


def test_a_process_that_forgets_the_end_is_interrupted(client: Client) -> None:
    script = "import caravan; run = caravan.Run(experiment='forgotten'); print(run.id)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert client.run(done.stdout.strip())["state"] == "interrupted"


def test_a_new_attempt_takes_over(client: Client) -> None:
    first = Run(experiment="resumed", steps=20)
    first.log({"loss": 1.0}, step=3)
    until(lambda: points(client, first.id, "loss"), "the point")
    until(lambda: client.run(first.id)["step"] == 3, "the step")
    with Run(resume=first.id) as second:
        assert second.id == first.id
        second.log({"loss": 2.0})
        until(lambda: first.should_stop, "the revocation")
        first.log({"loss": 9.0}, step=9)
    assert not first.finish(timeout_s=2.0)
    found = client.run(first.id)
    assert [one["state"] for one in found["attempts"]] == ["succeeded", "interrupted"]
    assert points(client, first.id, "loss") == [(3, 1.0), (4, 2.0)]


def test_a_forked_worker_reports_nothing(client: Client) -> None:
    script = (
        "import os, caravan\n"
        "with caravan.Run(experiment='forked') as run:\n"
        "    child = os.fork()\n"
        "    run.log({'loss': 2.0 if child == 0 else 1.0}, step=1)\n"
        "    if child == 0:\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "print(run.id)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert points(client, done.stdout.strip(), "loss") == [(1, 1.0)]


def test_it_says_why_a_run_cannot_begin(client: Client) -> None:
    with pytest.raises(RefusedError, match="Name the run"):
        Run()
    with pytest.raises(RefusedError, match="project"):
        Run(experiment="x", project="nowhere")
    launched = client.launch(recipe="smoke")
    with pytest.raises(RefusedError, match="Caravan itself starts"):
        Run(resume=launched["id"])


def test_the_package_offers_what_it_says() -> None:
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = package.nothing


def test_a_watch_draws_state_progress_and_metrics(client: Client) -> None:
    with Run("drawn\x1b[2J", experiment="drawn", steps=10) as run:
        for step in range(1, 9):
            run.log({"eval/completion_rate": step / 10, "train/loss": 1 / step}, step=step)
    followed = Followed(client.run(run.id))
    read_points(client, followed)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(panel(followed))
    shown = console.export_text()
    assert "drawn" in shown and "succeeded" in shown and "step 8/10" in shown
    assert "80.0%" in shown and "▁▂▃▄▅▆▇█" in shown and "loss" in shown
    assert "\x1b" not in shown
