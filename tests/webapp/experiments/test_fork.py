"""Runs that start from another run's checkpoint: launched, told to the driver, held, refused."""

from typing import Any

import pytest
from django.utils import timezone

from tests.webapp.support import Api, Driver, start
from webapp.accounts.models import Membership, Project, Role, User
from webapp.experiments import services
from webapp.experiments.models import Checkpoint, Run, Stage
from webapp.problems import RefusedError


@pytest.fixture
def checkpoint(driver: Driver) -> Checkpoint:
    return make(driver)


def make(driver: Driver, step: int = 20, **fields: Any) -> Checkpoint:
    return driver.run.checkpoints.create(
        attempt=driver.attempt,
        stage=2,
        step=step,
        policy_version=120 + step,
        path=f"checkpoints/attempt-1/stage-2-step-{step:06d}",
        files={"model.safetensors": {"size": 1, "sha256": "0" * 64}},
        created_at=timezone.now(),
        **fields,
    )


def fork(api: Api, checkpoint: Checkpoint, **given: Any) -> Any:
    return api("POST", "runs", {"checkpoint": checkpoint.pk, **given})


def begun(run: Run) -> None:
    """Its driver has reported its first stage: everything is copied."""
    Stage.objects.create(
        attempt=run.attempts.get(), index=0, name="synthesise", state="done",
        started_at=timezone.now(),
    )  # fmt: skip


def test_a_fork_keeps_its_parent_and_checkpoint_and_the_parents_spec(
    api: Api, checkpoint: Checkpoint
) -> None:
    answer = fork(api, checkpoint, overrides={"stages.2.steps": 12}, notes="longer")
    assert answer.status_code == 201, answer.content
    run = Run.objects.get(pk=answer.json()["id"])
    assert (run.parent, run.checkpoint) == (checkpoint.run, checkpoint)
    assert answer.json()["checkpoint_id"] == checkpoint.pk
    assert run.experiment == checkpoint.run.experiment
    assert run.spec["stages"][2] == {**checkpoint.run.spec["stages"][2], "steps": 12}
    assert api("GET", f"runs/{checkpoint.run_id}").json()["children"] == 1


def test_its_driver_is_told_where_the_checkpoint_lies(
    owner: User, checkpoint: Checkpoint, at_ingest: None, client: Any
) -> None:
    run = services.launch_run(
        checkpoint.run.project,
        owner,
        services.check_spec(checkpoint.run.spec),
        services.Launch(checkpoint=checkpoint),
    )
    claim = services.claim(run.attempts.get().pk)
    assert claim is not None
    body = {"attempt": claim.attempt_id, "ticket": claim.ticket}
    told = client.post("/ingest/v1/tickets/redeem", body, content_type="application/json").json()
    origin = told["origin"]
    assert origin.pop("storage").endswith(f"/runs/{checkpoint.run_id}")
    assert origin == {
        "id": checkpoint.pk, "run_id": checkpoint.run_id, "checkpoint_path": checkpoint.path,
        "stage": 2, "step": 20, "version": 140,
    }  # fmt: skip
    assert told["resume"] is None


def test_a_checkpoint_is_held_until_the_fork_has_copied_it(
    api: Api, checkpoint: Checkpoint, owner: User
) -> None:
    run = Run.objects.get(pk=fork(api, checkpoint).json()["id"])
    answer = api("DELETE", f"checkpoints/{checkpoint.pk}")
    assert answer.status_code == 409
    assert run.pk in answer.json()["detail"]

    parent = checkpoint.run
    services.fail_attempt(parent.attempts.get().pk, "over")
    services.archive(parent.pk, owner)
    with pytest.raises(RefusedError, match=f"run '{run.name}', which starts from its checkpoint"):
        services.delete_run(parent.pk, owner)
    begun(run)
    assert api("DELETE", f"checkpoints/{checkpoint.pk}").status_code == 204
    services.delete_run(parent.pk, owner)
    run.refresh_from_db()
    assert (run.parent, run.checkpoint) == (None, None)


def test_pruning_leaves_what_a_fork_has_not_copied(api: Api, driver: Driver) -> None:
    steps = [make(driver, step) for step in range(10, 70, 10)]
    run = Run.objects.get(pk=fork(api, steps[0]).json()["id"])
    keep = driver.run.spec["checkpoint"]["keep"]
    assert services.prune_checkpoints() == len(steps) - keep - 1
    steps[0].refresh_from_db()
    assert steps[0].removed_at is None
    begun(run)
    assert services.prune_checkpoints() == 1


def test_what_does_not_fit_the_checkpoint_is_refused_at_its_fields(
    api: Api, checkpoint: Checkpoint
) -> None:
    answer = fork(api, checkpoint, overrides={"seed": 9, "model.width": 64})
    assert answer.status_code == 422
    told = answer.json()
    assert {"seed", "model.width"} == {error["path"] for error in told["errors"]}
    assert "made with seed 0" in told["detail"]
    assert Run.objects.count() == 1


def test_removed_unknown_and_external_checkpoints_start_nothing(
    api: Api, driver: Driver, checkpoint: Checkpoint
) -> None:
    gone = make(driver, 30, removed_at=timezone.now())
    assert fork(api, gone).status_code == 410
    checkpoint.pk = "ckpt_of_nobody"
    assert fork(api, checkpoint).status_code == 404
    Run.objects.update(is_external=True)
    answer = fork(api, driver.run.checkpoints.get(step=20))
    assert "not Caravan's" in answer.json()["detail"]
    assert Run.objects.count() == 1


def test_a_checkpoint_of_another_project_is_unseen_or_refused(
    checkpoint: Checkpoint, outsider: User, viewer: User, owner: User
) -> None:
    other = Api(outsider)
    assert fork(other, checkpoint).status_code == 404
    assert other("POST", f"checkpoints/{checkpoint.pk}/evaluate", {}).status_code == 404
    reader = Api(viewer)
    assert fork(reader, checkpoint).status_code == 403
    assert reader("POST", f"checkpoints/{checkpoint.pk}/evaluate", {}).status_code == 403

    elsewhere = Project.objects.get(name="Elsewhere")
    Membership.objects.create(project=elsewhere, user=owner, role=Role.ADMIN)
    answer = fork(Api(owner), checkpoint, project=elsewhere.pk)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "checkpoint")
    assert Run.objects.count() == 1


def test_a_checkpoint_is_judged_in_a_run_of_its_own(api: Api, checkpoint: Checkpoint) -> None:
    body = {"trials": 4, "temperature": 1, "tasks": "quick", "number": 40, "hops": [3]}
    answer = api("POST", f"checkpoints/{checkpoint.pk}/evaluate", body)
    assert answer.status_code == 201, answer.content
    run = Run.objects.get(pk=answer.json()["id"])
    assert services.is_evaluation(run.spec) and not services.is_evaluation(checkpoint.run.spec)
    no_single_task = {"position": None, "question": None, "answer": None}
    assert run.spec["stages"][1] == {"kind": "evaluate", **body, **no_single_task}
    assert (run.parent, run.checkpoint, run.tags) == (checkpoint.run, checkpoint, ["evaluation"])
    assert run.name == f"{checkpoint.run.name}-evaluation-2"
    assert start(run).token, "it is a run like any other"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"trials": 0}, "stages.1.trials"),
        ({"trials": 4}, "stages.1.temperature"),
        ({"number": 10_000}, "stages.1.number"),
        ({"hops": [9]}, "stages.1.hops"),
        ({"temperature": -1}, "stages.1.temperature"),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(
    api: Api, checkpoint: Checkpoint, body: dict[str, Any], field: str
) -> None:
    answer = api("POST", f"checkpoints/{checkpoint.pk}/evaluate", body)
    assert answer.status_code == 422
    assert field in {error["path"] for error in answer.json()["errors"]}


def test_weights_that_nothing_trained_are_not_judged(api: Api, project: Project) -> None:
    spec = {"name": "x", "stages": [{"kind": "synthesise"}, {"kind": "evaluate"}]}
    answer = api("POST", "runs", {"spec": spec})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "stages.1.kind"
    spec["stages"].insert(1, {"kind": "sft", "steps": 100})  # type: ignore[attr-defined]
    assert api("POST", "runs", {"spec": spec}).status_code == 201
