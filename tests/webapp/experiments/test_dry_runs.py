"""A dry run is a run on tiny amounts that no list counts, and its result is a checklist."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.webapp.support import SPEC, Api, Driver, start
from tests.webapp.sweeps.playing import end
from webapp import storage
from webapp.accounts.models import Project, User
from webapp.experiments import dry_runs, services
from webapp.experiments.lists import list_experiments
from webapp.experiments.models import Run, Stage
from webapp.experiments.queries import list_runs
from webapp.monitoring.models import RunEvent, Writer
from webapp.problems import RefusedError

ORDER = ["driver", "synthesis", "pool", "rollout-0", "trainer-0", "stage-0", "stage-1", "stage-2"]


@pytest.fixture
def run(project: Project, owner: User) -> Run:
    spec = services.check_spec(SPEC)
    return services.launch_run(project, owner, spec, services.Launch(dry_run=True))


def states(run: Run) -> dict[str, str]:
    run.refresh_from_db()
    return {check.part: check.state for check in dry_runs.checklist(run)}


def hear(driver: Driver, source: str) -> None:
    Writer.objects.create(attempt=driver.attempt, source=source)


def stage(driver: Driver, index: int, step: int, ended: bool = True) -> None:
    begun = timezone.now()
    Stage.objects.create(
        attempt=driver.attempt, index=index, name="x", state="done" if ended else "running",
        step=step, steps=1, started_at=begun,
        ended_at=begun + timedelta(seconds=7) if ended else None,
    )  # fmt: skip


def test_it_runs_its_spec_on_tiny_amounts_and_remembers_the_whole(run: Run) -> None:
    assert [stage.get("steps") for stage in run.spec["stages"]] == [None, 1, 1]
    assert [stage.get("steps") for stage in run.asked_spec["stages"]] == [None, 100, 20]
    assert (run.name, run.steps, run.is_dry_run) == ("try-dry-run-1", 2, True)


def test_its_list_fills_as_parts_report_and_stages_end(run: Run) -> None:
    assert list(states(run)) == ORDER
    assert set(states(run).values()) == {"waiting"}
    driver = start(run)
    hear(driver, "synthesis")
    RunEvent.objects.create(
        run=run, attempt=driver.attempt, kind="log", source="synthesis", seq=1, cursor=1, data={},
        at=driver.attempt.started_at.timestamp() + 2.5,
    )  # fmt: skip
    stage(driver, 0, 0)
    stage(driver, 1, 0, ended=False)
    found = states(run)
    assert [found[part] for part in ("driver", "synthesis", "stage-0")] == ["done"] * 3
    assert [found[part] for part in ("pool", "trainer-0", "stage-1")] == ["waiting"] * 3
    seconds = {check.part: check.seconds for check in dry_runs.checklist(run)}
    assert seconds["synthesis"] == pytest.approx(2.5, abs=1e-3)
    assert (seconds["stage-0"], seconds["stage-1"]) == (7, None)


def test_it_passes_once_everything_has_worked(run: Run) -> None:
    driver = start(run)
    for source in ORDER[1:5]:
        hear(driver, source)
    for index in range(3):
        stage(driver, index, min(index, 1))
    assert dry_runs.passed(run, dry_runs.checklist(run)) is None
    end(run)
    run.refresh_from_db()
    assert set(states(run).values()) == {"done"}
    assert dry_runs.passed(run, dry_runs.checklist(run)) is True


def test_what_did_not_happen_is_missing_and_says_why(run: Run) -> None:
    driver = start(run)
    hear(driver, "synthesis")
    stage(driver, 0, 0)
    stage(driver, 1, 0, ended=False)
    end(run, "failed", "out of memory")
    run.refresh_from_db()
    checks = {check.part: check for check in dry_runs.checklist(run)}
    assert (checks["stage-1"].state, checks["stage-1"].detail) == ("missing", "out of memory")
    assert checks["trainer-0"].state == checks["stage-2"].state == "missing"
    assert dry_runs.passed(run, list(checks.values())) is False


def test_a_stage_that_took_no_step_is_missing(run: Run) -> None:
    driver = start(run)
    stage(driver, 1, 0)
    assert states(run)["stage-1"] == "missing"


def test_no_list_counts_it_unless_it_is_asked_for(
    run: Run, launch: Callable[..., Run], api: Api, page: Client
) -> None:
    whole = launch()
    assert whole.name == "try-1"

    def listed(q: str) -> list[str]:
        return [one["id"] for one in api("GET", f"runs?q={q}").json()["items"]]

    assert listed("") == [whole.pk]
    assert listed("dry:no") == [whole.pk]
    assert listed("dry:yes") == [run.pk]
    assert listed("dry:all") == [whole.pk, run.pk]
    assert api("GET", "runs?q=dry:maybe").status_code == 422
    counted = api("GET", "experiments").json()["items"]
    assert [one["run_count"] for one in counted] == [1]
    shown = page.get(reverse("experiment", args=[run.experiment_id])).content.decode()
    assert whole.pk in shown and run.pk not in shown


def test_it_is_launched_and_read_by_the_api(api: Api, owner: User, run: Run) -> None:
    made = api("POST", "runs", {"spec": SPEC, "dry_run": True}).json()
    assert made["is_dry_run"] is True
    found = api("GET", f"runs/{made['id']}/dry-run").json()
    assert found["passed"] is None
    assert [one["part"] for one in found["checks"]] == ORDER
    whole = api("POST", "runs", {"spec": SPEC}).json()
    assert api("GET", f"runs/{whole['id']}/dry-run").status_code == 404


def test_the_launch_page_tries_a_spec_and_the_run_page_shows_the_result(
    page: Client, project: Project
) -> None:
    address = reverse("launch", args=[project.pk])
    answer = page.post(address, {"text": str(SPEC).replace("'", '"'), "dry_run": "1"})
    run = Run.objects.get()
    assert answer.status_code == 302 and run.is_dry_run
    text = page.get(reverse("run", args=[run.pk])).content.decode()
    assert "one step is trained" in text and "Launch in full" in text
    clone = page.get(f"{address}?clone={run.pk}").content.decode()
    assert "steps: 100" in clone


def test_it_keeps_no_checkpoint_and_cannot_go_on(run: Run, owner: User) -> None:
    driver = start(run)
    checkpoint = run.checkpoints.create(
        attempt=driver.attempt, stage=1, step=1, policy_version=1, path="checkpoints/1",
        files={"model.safetensors": {"size": 1, "sha256": "0" * 64}}, final=True,
        created_at=timezone.now(),
    )  # fmt: skip
    storage.write_run_file(run.pk, "checkpoints/1/model.safetensors", b"x")
    assert services.clear_dry_runs() == 0  # it goes on
    end(run, "failed", "over")
    assert services.clear_dry_runs() == 1
    checkpoint.refresh_from_db()
    assert checkpoint.removed_at is not None
    with pytest.raises(RefusedError, match="keeps no checkpoint"):
        services.resume(run.pk, owner)
    Run.objects.filter(pk=run.pk).update(state="interrupted")
    assert services.resume_interrupted() == []


def test_a_fork_is_tried_on_its_parents_tasks(
    launch: Callable[..., Run], owner: User, project: Project
) -> None:
    parent = launch()
    driver = start(parent)
    checkpoint = parent.checkpoints.create(
        attempt=driver.attempt, stage=1, step=1, policy_version=1, path="checkpoints/1",
        files={}, created_at=timezone.now(),
    )  # fmt: skip
    project.max_running = 2
    project.save()
    spec: Any = services.check_spec(parent.spec)
    wish = services.Launch(checkpoint=checkpoint, dry_run=True)
    run = services.launch_run(project, owner, spec, wish)
    assert run.spec["stages"][0] == parent.spec["stages"][0]
    assert run.spec["evaluation"]["tasks"] == parent.spec["evaluation"]["tasks"]
    assert [one["steps"] for one in run.spec["stages"][1:]] == [1, 1]
    assert (run.is_dry_run, run.parent, run.checkpoint) == (True, parent, checkpoint)
    assert "synthesis" not in states(run) and states(run)["origin"] == "waiting"
    stage(start(run), 0, 0)
    assert states(run)["origin"] == "done"


def test_its_experiment_counts_no_dry_run(run: Run, owner: User) -> None:
    from webapp.accounts.access import Actor

    assert list_runs(Actor(owner)).items == []
    assert [one.run_count for one in list_experiments(Actor(owner)).items] == [0]  # type: ignore[attr-defined]
