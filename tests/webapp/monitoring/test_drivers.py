"""The driver's protocol: a ticket once, heartbeats both ways, blobs by hash, a last word."""

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
import zstandard
from django.utils import timezone

from engine.records.events import MAX_BATCH_BYTES
from engine.records.shards import write_shard
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import SPEC, Driver, ingest, start
from webapp import storage
from webapp.accounts.credentials import sampler_token
from webapp.experiments import services
from webapp.experiments.models import Attempt, Run, State, Upload
from webapp.monitoring.models import DeviceSample
from webapp.reviews.models import Trajectory

pytestmark = pytest.mark.usefixtures("at_ingest")


def claimed(run: Run) -> services.Claim:
    claim = services.claim(run.attempts.get().pk)
    assert claim is not None
    return claim


def redeem(claim: services.Claim) -> Any:
    data = {"attempt": claim.attempt_id, "ticket": claim.ticket}
    return ingest("POST", "tickets/redeem", data=data)


def test_a_ticket_buys_a_token_and_the_spec(run: Run) -> None:
    answer = redeem(claimed(run)).json()
    assert answer["spec"] == run.spec
    assert answer["attempt_number"] == 1
    assert answer["resume"] is None
    assert answer["storage"].endswith(f"runs/{run.pk}")
    assert answer["heartbeat_s"] == 3
    assert Run.objects.get(pk=run.pk).state == State.RUNNING
    assert answer["token"] not in str(list(Attempt.objects.values()))


def test_an_attempt_keeps_the_code_version_of_its_driver(run: Run) -> None:
    Run.objects.update(code_version="a" * 40)
    claim = claimed(run)
    data = {"attempt": claim.attempt_id, "ticket": claim.ticket, "code_version": "b" * 40}
    answer = ingest("POST", "tickets/redeem", data=data).json()
    assert answer["code_version"] == "a" * 40
    attempt = Attempt.objects.get()
    assert (attempt.code_version, attempt.runs_other_code) == ("b" * 40, True)


def test_a_ticket_works_once(run: Run) -> None:
    claim = claimed(run)
    assert redeem(claim).status_code == 200
    assert redeem(claim).status_code == 401


def test_a_ticket_works_for_ten_minutes(run: Run) -> None:
    claim = claimed(run)
    Attempt.objects.update(ticket_expires_at=timezone.now() - timedelta(seconds=1))
    assert redeem(claim).status_code == 401


@pytest.mark.parametrize("wrong", ["attempt", "ticket"])
def test_a_wrong_ticket_is_refused(run: Run, wrong: str) -> None:
    claim = claimed(run)
    data = {"attempt": claim.attempt_id, "ticket": claim.ticket, wrong: "guess"}
    assert ingest("POST", "tickets/redeem", data=data).status_code == 401
    assert redeem(claim).status_code == 200


def test_a_resumed_attempt_hears_where_to_go_on(driver: Driver, owner: Any) -> None:
    driver.run.checkpoints.create(
        attempt=driver.attempt,
        stage=1,
        step=40,
        policy_version=7,
        path="checkpoints/1-40",
        files={},
        created_at=timezone.now(),
    )
    services.fail_attempt(driver.attempt.pk, "killed")
    services.resume(driver.run.pk, owner)
    attempt = driver.run.attempts.get(number=2)
    claim = services.claim(attempt.pk)
    assert claim is not None
    answer = redeem(claim).json()
    assert answer["attempt_number"] == 2
    assert answer["resume"] == {
        "checkpoint_path": "checkpoints/1-40",
        "stage": 1,
        "step": 40,
        "version": 7,
    }


def beat(driver: Driver, stage: int = 1, step: int = 3) -> Any:
    data = {"phase": "train", "stage": stage, "step": step}
    return ingest("POST", "heartbeat", driver.token, data)


def test_a_heartbeat_brings_progress_through_the_whole_spec(driver: Driver) -> None:
    assert beat(driver, stage=2, step=5).json() == {
        "command": "run",
        "pause_rollouts": False,
        "pause_training": False,
    }
    run = Run.objects.get(pk=driver.run.pk)
    assert (run.phase, run.stage, run.step, run.steps) == ("train", 2, 105, 120)


def test_a_heartbeat_takes_wishes_along(driver: Driver, owner: Any) -> None:
    services.pause(driver.run.pk, owner, rollouts=True)
    assert beat(driver).json()["pause_rollouts"] is True
    services.pause(driver.run.pk, owner, rollouts=False, training=True)
    assert beat(driver).json() == {
        "command": "run",
        "pause_rollouts": False,
        "pause_training": True,
    }
    services.stop(driver.run.pk, owner)
    assert beat(driver).json()["command"] == "stop"
    assert Run.objects.get(pk=driver.run.pk).state == State.STOPPING


def test_caravan_going_down_reaches_a_run_as_interrupt(driver: Driver) -> None:
    assert services.interrupt_active() == [driver.run.pk]
    assert beat(driver).json()["command"] == "interrupt"


def test_a_heartbeat_brings_an_unreachable_run_back(driver: Driver) -> None:
    Run.objects.update(state=State.UNREACHABLE)
    Attempt.objects.update(state=State.UNREACHABLE)
    beat(driver)
    assert Run.objects.get(pk=driver.run.pk).state == State.RUNNING
    assert Attempt.objects.get(pk=driver.attempt.pk).state == State.RUNNING


@pytest.mark.parametrize("state", ["succeeded", "stopped", "failed", "interrupted"])
def test_the_last_word_ends_the_run_and_revokes_the_token(driver: Driver, state: str) -> None:
    data = {"state": state, "reason": "because", "summary": {"completion": 0.9}}
    assert ingest("POST", "finish", driver.token, data).json() == {}
    run = Run.objects.get(pk=driver.run.pk)
    assert (run.state, run.state_reason, run.summary) == (state, "because", {"completion": 0.9})
    assert run.ended_at is not None
    assert beat(driver).status_code == 409


def test_the_last_word_may_be_packed(driver: Driver) -> None:
    told = {"state": "succeeded", "reason": "", "summary": {"text": "long " * 1000}}
    packed = zstandard.ZstdCompressor().compress(json.dumps(told).encode())
    answer = ingest("POST", "finish", driver.token, packed, **{"Content-Encoding": "zstd"})
    assert answer.status_code == 200
    assert Run.objects.get(pk=driver.run.pk).summary == told["summary"]


def test_a_run_cannot_end_as_lost_by_its_own_word(driver: Driver) -> None:
    assert ingest("POST", "finish", driver.token, {"state": "lost"}).status_code == 422


def test_blobs_are_stored_under_their_hash(driver: Driver) -> None:
    sha256 = hashlib.sha256(b"bytes").hexdigest()
    assert ingest("PUT", f"blobs/{sha256}", driver.token, b"bytes").status_code == 201
    assert ingest("PUT", f"blobs/{sha256}", driver.token, b"bytes").status_code == 200
    assert storage.read_blob(sha256) == b"bytes"
    assert storage.read_blob(sha256, 1, 2) == b"yt"


def test_a_blob_that_is_not_what_its_name_says_is_refused(driver: Driver) -> None:
    sha256 = hashlib.sha256(b"never sent").hexdigest()
    assert ingest("PUT", f"blobs/{sha256}", driver.token, b"other").status_code == 422
    assert ingest("PUT", f"blobs/{'A' * 64}", driver.token, b"never sent").status_code == 422
    assert not storage.has_blob(sha256)


def uploaded(driver: Driver, blob: bytes, sha256: str) -> int:
    return int(ingest("PUT", f"blobs/{sha256}", driver.token, blob).status_code)


def shipped(driver: Driver, shard: str, rows: list[Any], seq: int = 1) -> Any:
    item = {"kind": "trajectories", "source": "r", "seq": seq, "at": 1.0, "shard": shard}
    data = {"items": [{**item, "rows": rows}]}
    return ingest("POST", "events", driver.token, data).json()


def test_trajectory_rows_need_their_shard(driver: Driver) -> None:
    blob, shard, rows = write_shard([trajectory(name="t-1"), trajectory(name="t-2")])
    assert shipped(driver, shard, rows)["rejected"][0]["field"] == "shard"
    uploaded(driver, blob, shard)
    assert shipped(driver, shard, rows, seq=2)["accepted"] == 1
    assert shipped(driver, shard, rows, seq=3)["accepted"] == 1  # the rows are there already
    assert set(Trajectory.objects.values_list("pk", "run_id")) == {
        ("t-1", driver.run.pk),
        ("t-2", driver.run.pk),
    }


def test_a_bad_trajectory_row_is_named(driver: Driver) -> None:
    blob, shard, rows = write_shard([trajectory(name="t-1")])
    uploaded(driver, blob, shard)
    answer = shipped(driver, shard, [{**rows[0], "reward": "NaN"}])
    assert answer["rejected"][0]["field"] == "rows.reward"
    assert not Trajectory.objects.exists()


def test_a_run_cannot_take_the_trajectories_of_another(driver: Driver, launch: Any) -> None:
    blob, shard, rows = write_shard([trajectory(name="t-1")])
    uploaded(driver, blob, shard)
    shipped(driver, shard, rows)
    other = start(launch())
    uploaded(other, blob, shard)
    answer = shipped(other, shard, rows)
    assert answer["rejected"][0]["field"] == "rows.id"
    assert Trajectory.objects.get().run_id == driver.run.pk


@pytest.fixture
def elsewhere(outsider: Any) -> Driver:
    """A run of somebody who has no part in the project."""
    project = outsider.memberships.get().project
    return start(services.launch_run(project, outsider, services.check_spec(SPEC)))


def test_who_knows_a_hash_does_not_get_at_the_trajectory(driver: Driver, elsewhere: Driver) -> None:
    blob, shard, rows = write_shard([trajectory(name="t-1", prompt="secret")])
    assert uploaded(driver, blob, shard) == 201
    stolen = [{**row, "id": f"mine-{index}"} for index, row in enumerate(rows)]
    answer = shipped(elsewhere, shard, stolen)
    assert answer["rejected"][0]["field"] == "shard"
    assert not Trajectory.objects.exists()


def test_who_knows_hashes_does_not_get_at_a_checkpoint(driver: Driver, elsewhere: Driver) -> None:
    part = hashlib.sha256(b"weights").hexdigest()
    assert uploaded(driver, b"weights", part) == 201
    saved = {"kind": "checkpoint", "source": "t", "seq": 1, "at": 1.0, "stage": 0, "step": 1}
    files = {"model.bin": {"size": 7, "sha256": part, "parts": [part]}}
    item = {**saved, "version": 1, "path": "checkpoints/1", "files": files}
    refused = ingest("POST", "events", elsewhere.token, {"items": [item]}).json()
    assert refused["rejected"][0]["field"] == "files.model.bin"
    assert ingest("POST", "events", driver.token, {"items": [item]}).json()["accepted"] == 1


def test_equal_bytes_of_two_projects_are_stored_once_and_not_told_of(
    driver: Driver, elsewhere: Driver
) -> None:
    blob, shard, rows = write_shard([trajectory(name="t-1")])
    assert uploaded(driver, blob, shard) == 201
    assert uploaded(elsewhere, blob, shard) == 201  # as if nobody had them
    assert shipped(elsewhere, shard, rows)["accepted"] == 1
    assert set(Upload.objects.filter(sha256=shard).values_list("run_id", flat=True)) == {
        driver.run.pk,
        elsewhere.run.pk,
    }


def devices(token: str, **device: Any) -> Any:
    device = {"name": "cpu0", "kind": "cpu", "busy": 0.5, **device}
    item = {"kind": "devices", "source": "s", "seq": 1, "at": 5.0, "node": "n", "devices": [device]}
    return ingest("POST", "devices", token, {"items": [item, item]})


@pytest.mark.django_db
def test_the_sampler_reports_devices() -> None:
    assert devices(sampler_token()).status_code == 200
    assert devices(sampler_token()).status_code == 200
    sample = DeviceSample.objects.get()
    assert sample.node == "n"
    assert sample.devices[0]["busy"] == 0.5


def test_only_the_sampler_reports_devices(driver: Driver) -> None:
    assert devices(driver.token).status_code == 401
    assert devices("cvs_guess").status_code == 401
    assert devices("").status_code == 401


@pytest.mark.django_db
def test_a_device_without_a_kind_is_named() -> None:
    answer = devices(sampler_token(), kind="toaster")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "items.0.devices.0.kind"


@pytest.mark.django_db
@pytest.mark.parametrize("packed", [True, False])
def test_a_batch_of_the_sampler_over_the_limit_names_it(packed: bool) -> None:
    body = b'{"items": []}' + b" " * MAX_BATCH_BYTES
    headers = {"Content-Encoding": "zstd"} if packed else {}
    sent = zstandard.compress(body) if packed else body
    answer = ingest("POST", "devices", sampler_token(), sent, **headers)
    assert answer.status_code == 413
    assert f"{MAX_BATCH_BYTES:,} bytes" in answer.json()["detail"]
