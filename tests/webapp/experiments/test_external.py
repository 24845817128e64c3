"""Runs that people's own trainers report: what Caravan does with them, and what it leaves alone."""

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.webapp.support import SPEC, Api, downloaded, ingest, metrics
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Attempt, Run, State
from webapp.experiments.states import due
from webapp.problems import RefusedError
from workers.control import tasks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def begun(project: Project, owner: User) -> services.Begun:
    launch = services.Launch(name="mine", experiment="own")
    return services.begin_external(project, owner, {"lr": 0.1}, launch, steps=10)


@pytest.fixture
def at_ingest(settings: Any) -> None:
    settings.ROOT_URLCONF = "webapp.urls_ingest"


def test_it_runs_at_once_and_keeps_its_config(api: Api) -> None:
    answer = api("POST", "external-runs", {"experiment": "own", "config": {"lr": 0.1}, "steps": 7})
    assert answer.status_code == 201
    run = api("GET", f"runs/{answer.json()['run_id']}").json()
    assert (run["state"], run["is_external"], run["steps"]) == ("running", True, 7)
    assert run["spec"]["config"] == {"lr": 0.1}
    assert answer.json()["token"].startswith("cva_")


def test_it_refuses_a_run_without_a_name(api: Api) -> None:
    answer = api("POST", "external-runs", {})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "name"


def test_it_takes_no_place_of_the_queue(begun: services.Begun, owner: User) -> None:
    project = begun.run.project
    for _ in range(project.max_running):
        services.begin_external(project, owner, {}, services.Launch(experiment="more"))
    queued = services.launch_run(project, owner, services.check_spec(SPEC))
    assert due(project.pk) == [queued.attempts.get().pk]


def test_it_goes_on_when_caravan_stops(begun: services.Begun) -> None:
    assert services.interrupt_active() == []
    assert services.resume_interrupted() == []
    begun.run.refresh_from_db()
    assert (begun.run.state, begun.run.wish) == (State.RUNNING, "run")


def test_it_is_not_resumed_or_paused_by_caravan(begun: services.Begun, owner: User) -> None:
    with pytest.raises(RefusedError, match="not paused"):
        services.pause(begun.run.pk, owner, training=True)
    services.fail_attempt(begun.attempt.pk, "broke")
    with pytest.raises(RefusedError, match="own trainer"):
        services.resume(begun.run.pk, owner)


def test_a_new_attempt_revokes_the_one_before(
    begun: services.Begun, owner: User, at_ingest: None
) -> None:
    again = services.restart_external(begun.run.pk, owner)
    assert again.attempt.number == 2
    first = {"items": [metrics(1, 1, loss=1.0)]}
    assert ingest("POST", "events", begun.token, first).status_code == 409
    assert ingest("POST", "events", again.token, first).status_code == 200
    assert Attempt.objects.get(pk=begun.attempt.pk).state == State.INTERRUPTED


def test_a_silent_one_is_unreachable_and_never_lost(begun: services.Begun) -> None:
    _silence(begun.run)
    tasks.reconcile()
    tasks.reconcile()
    begun.run.refresh_from_db()
    assert begun.run.state == State.UNREACHABLE


def test_a_silent_one_that_was_asked_to_stop_is_stopped(begun: services.Begun, owner: User) -> None:
    services.stop(begun.run.pk, owner)
    _silence(begun.run)
    tasks.reconcile()
    begun.run.refresh_from_db()
    assert begun.run.state == State.STOPPED


def test_one_that_does_not_stop_is_ended_here(begun: services.Begun, owner: User) -> None:
    services.stop(begun.run.pk, owner)
    Run.objects.filter(pk=begun.run.pk).update(stop_asked_at=timezone.now() - timedelta(minutes=5))
    tasks.reconcile()
    begun.run.refresh_from_db()
    assert begun.run.state == State.STOPPED
    assert "may still run" in begun.run.state_reason


def test_its_checkpoints_come_in_parts(begun: services.Begun, api: Api, settings: Any) -> None:
    parts = [b"first ", b"second"]
    names = [hashlib.sha256(part).hexdigest() for part in parts]
    whole = b"".join(parts)
    manifest = {"size": len(whole), "sha256": hashlib.sha256(whole).hexdigest(), "parts": names}
    item = {
        "kind": "checkpoint",
        "source": "trainer",
        "seq": 1,
        "at": 1.7e9,
        "stage": 0,
        "step": 5,
        "version": 5,
        "path": "checkpoints/attempt-1/step-5",
        "files": {"model.bin": manifest},
    }
    settings.ROOT_URLCONF = "webapp.urls_ingest"
    early = ingest("POST", "events", begun.token, {"items": [item]}).json()
    assert early["rejected"][0]["field"] == "files.model.bin"
    for name, part in zip(names, parts, strict=True):
        assert ingest("PUT", f"blobs/{name}", begun.token, part).status_code == 201
    item["seq"] = 2
    assert ingest("POST", "events", begun.token, {"items": [item]}).json()["accepted"] == 1
    settings.ROOT_URLCONF = "webapp.urls"
    found = api("GET", f"runs/{begun.run.pk}/checkpoints").json()[0]
    answer = api("GET", f"checkpoints/{found['id']}/files/model.bin")
    assert answer["Content-Length"] == str(len(whole))
    assert downloaded(answer) == whole


@pytest.mark.parametrize(
    "tab", ["", "charts", "pool", "tree", "devices", "config", "logs", "checkpoints"]
)
def test_every_page_of_it_opens(begun: services.Begun, owner: User, client: Any, tab: str) -> None:
    client.force_login(owner)
    assert client.get(f"/runs/{begun.run.pk}/{tab}").status_code == 200


def _silence(run: Run) -> None:
    """Nothing was heard of it for a minute in which ingest was up."""
    services.pulse()
    before = timezone.now() - timedelta(minutes=1)
    Attempt.objects.filter(run=run).update(heartbeat_at=before)
    from webapp.monitoring.models import IngestPulse

    IngestPulse.objects.update(up_since=before)
