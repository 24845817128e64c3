"""Stages that learn from a version of a dataset: launched or refused, kept, read by their run."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from django.db.models import ProtectedError
from django.test import Client
from django.urls import reverse

from tests.webapp.support import SPEC, Api, downloaded, ingest, start
from webapp import storage
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Checkpoint, DatasetVersion, Run, StageDataset
from webapp.problems import RefusedError

Make = Callable[..., DatasetVersion]
TRAJECTORY = {"id": "t", "prompt": "a", "steps": [{"text": "b"}]}
PAIR = {"prompt": "a", "chosen": "b", "rejected": "c"}
TASK = {"prompt": "a", "answer": "b", "category": "city"}


def make_in(project: Project, user: User, kind: str, *rows: dict[str, Any]) -> DatasetVersion:
    dataset = project.datasets.filter(name=kind).first() or services.create_dataset(
        project, user, kind, kind
    )
    lines = [json.dumps(row).encode() for row in rows]
    return services.add_dataset_version(dataset, user, lines, source={"kind": "upload"})


@pytest.fixture
def make(project: Project, owner: User) -> Make:
    return lambda kind, *rows: make_in(project, owner, kind, *rows)


def stages(sft: str, dpo: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"kind": "synthesise"},
        {"kind": "sft", "source": "dataset", "dataset": sft, "steps": 100},
    ]
    return [*found, {"kind": "dpo", "dataset": dpo}] if dpo else found


def launched(project: Project, user: User, stages: list[dict[str, Any]], **spec: Any) -> Run:
    return services.launch_run(
        project, user, services.check_spec({"name": "stored", "stages": stages, **spec})
    )


def refusals(
    project: Project, user: User, stages: list[dict[str, Any]], **spec: Any
) -> dict[str, str]:
    with pytest.raises(RefusedError) as raised:
        launched(project, user, stages, **spec)
    assert not Run.objects.exists()
    return {problem.path: problem.message for problem in raised.value.errors}


def test_a_run_keeps_what_its_stages_learn_from(project: Project, api: Api, make: Make) -> None:
    rows, pairs = make("trajectories", TRAJECTORY), make("pairs", PAIR)
    spec = {"name": "stored", "stages": stages(rows.pk, pairs.pk)}
    answer = api("POST", "runs", {"project": project.pk, "spec": spec})
    assert answer.status_code == 201, answer.content
    found = api("GET", f"runs/{answer.json()['id']}").json()["datasets"]
    assert found == [
        {"stage": at, "version_id": one.pk, "number": 1, "dataset_id": one.dataset_id,
         "name": one.dataset.name}
        for at, one in ((1, rows), (2, pairs))
    ]  # fmt: skip
    with pytest.raises(ProtectedError):
        rows.dataset.delete()
    Run.objects.all().delete()
    assert not StageDataset.objects.exists()


def test_a_launch_reads_no_further_than_a_row_that_can_be_learned(
    project: Project, owner: User, make: Make
) -> None:
    version = make("trajectories", TRAJECTORY)
    rows = f"{json.dumps(TRAJECTORY)}\nno JSON\n".encode()
    version.blob = storage.put_blob(zstandard.compress(rows))
    version.save()
    assert launched(project, owner, stages(version.pk)).stage_datasets.get().version == version


def test_a_launch_names_every_version_that_cannot_be_learned_from(
    project: Project, owner: User, outsider: User, make: Make
) -> None:
    elsewhere = Project.objects.get(name="Elsewhere")
    foreign = make_in(elsewhere, outsider, "trajectories", TRAJECTORY)
    rows, pairs = make("trajectories", TRAJECTORY), make("pairs", PAIR)
    found = refusals(project, owner, stages(foreign.pk, "ver_0000000000000000"))
    assert found["stages.1.dataset"].startswith(f"There is no dataset version {foreign.pk} in this")
    assert "ver_0000000000000000" in found["stages.2.dataset"]
    found = refusals(project, owner, stages(pairs.pk, rows.pk))
    assert found == {
        "stages.1.dataset": "Version 1 of pairs holds pairs; a stage of kind sft learns from "
        "trajectories.",
        "stages.2.dataset": "Version 1 of trajectories holds trajectories; a stage of kind dpo "
        "learns from pairs.",
    }
    unreadable = make("trajectories", {**TRAJECTORY, "steps": [{"turn": "b"}]})
    found = refusals(project, owner, stages(unreadable.pk))
    assert found["stages.1.dataset"] == (
        "Version 2 of trajectories begins with rows of which none can be learned: row 1, "
        "steps.0.text: Field required."
    )


@pytest.mark.usefixtures("at_ingest")
def test_an_attempt_reads_what_its_own_spec_names_and_nothing_else(
    project: Project, owner: User, make: Make
) -> None:
    named, other = make("trajectories", TRAJECTORY), make("trajectories", TRAJECTORY)
    project.max_running = 9
    project.save()
    first = start(launched(project, owner, stages(named.pk)))
    answer = ingest("GET", f"datasets/{named.pk}", first.token)
    assert answer.status_code == 200
    text = zstandard.ZstdDecompressor().decompressobj().decompress(downloaded(answer))
    assert json.loads(text) == TRAJECTORY
    second = start(launched(project, owner, stages(other.pk)))
    plain = start(services.launch_run(project, owner, services.check_spec(SPEC)))
    for driver in (second, plain):
        answer = ingest("GET", f"datasets/{named.pk}", driver.token)
        assert (answer.status_code, b"No stage" in answer.content) == (404, True)
    for strange in (other.pk, named.dataset_id, "%00", "1"):
        assert ingest("GET", f"datasets/{strange}", first.token).status_code == 404
    services.stop(first.run.pk, owner)
    first.attempt.refresh_from_db()
    first.attempt.revoked_at = first.attempt.created_at
    first.attempt.save()
    assert ingest("GET", f"datasets/{named.pk}", first.token).status_code == 409


def test_pages_lead_from_the_run_to_its_dataset_and_back(
    project: Project, owner: User, page: Client, make: Make
) -> None:
    version = make("trajectories", TRAJECTORY)
    run = launched(project, owner, stages(version.pk))
    shown = page.get(reverse("run_config", args=[run.pk])).content.decode()
    link = reverse("dataset", args=[version.dataset_id])
    assert f"{link}?version=1" in shown
    shown = page.get(link).content.decode()
    assert version.pk in shown
    assert reverse("run", args=[run.pk]) in shown
    assert run.name in shown


def practising(tasks: str) -> list[dict[str, Any]]:
    return [{"kind": "synthesise"}, {"kind": "rl", "dataset": tasks}]


def test_a_run_trains_on_tasks_and_is_judged_by_others(
    project: Project, owner: User, api: Api, page: Client, make: Make
) -> None:
    practice, judged = make("tasks", TASK), make("tasks", TASK, {**TASK, "prompt": "c"})
    run = launched(project, owner, practising(practice.pk), evaluation={"dataset": judged.pk})
    found = api("GET", f"runs/{run.pk}").json()["datasets"]
    assert [(one["stage"], one["version_id"]) for one in found] == [
        (1, practice.pk), (None, judged.pk),
    ]  # fmt: skip
    learned = api("GET", f"runs/{run.pk}/lineage").json()["learned"]
    assert [one["stage"] for one in learned] == [1, None]
    for name in ("run_config", "run_lineage"):
        shown = page.get(reverse(name, args=[run.pk])).content.decode()
        assert "evaluations" in shown and "stage 1" in shown
    address = f"datasets/{judged.dataset_id}/versions/{judged.number}/lineage"
    assert api("GET", address).json()["learners"] == [
        {"run_id": run.pk, "name": run.name, "stage": None}
    ]
    shown = page.get(reverse("dataset", args=[judged.dataset_id])).content.decode()
    assert "as=evaluation" in shown and "as=rl" in shown and run.name in shown
    with pytest.raises(RefusedError, match="learned from|launched with"):
        services.delete_dataset_version(judged, owner)


def test_tasks_that_cannot_be_played_are_refused_at_launch(
    project: Project, owner: User, make: Make
) -> None:
    tasks, rows = make("tasks", TASK), make("trajectories", TRAJECTORY)
    pairs = make("pairs", PAIR)
    answers = make("tasks", {**TASK, "answer": ["b"]})
    found = refusals(project, owner, practising(rows.pk), evaluation={"dataset": pairs.pk})
    assert found["stages.1.dataset"].endswith("a stage of kind rl learns from tasks.")
    assert found["evaluation.dataset"].endswith("evaluations play tasks.")
    found = refusals(project, owner, practising(answers.pk))
    assert "row 1, answer" in found["stages.1.dataset"]
    gate = {"gate": {"shares": {"3 hops": 0.5, "4 hops": 0.5}}}
    found = refusals(project, owner, practising(tasks.pk), pool=gate)
    assert "both must name the same categories" in found["stages.1.dataset"]
    fitting = {"gate": {"shares": {"city": 1.0}}}
    launched(project, owner, practising(tasks.pk), pool=fitting)


def taught(tasks: str, *teachers: list[str]) -> list[dict[str, Any]]:
    """Stages that end with a student on these tasks, with a teacher for each list of categories."""
    experts = [{"kind": "sft", "steps": 100} for _ in teachers]
    named = [{"stage": at, "categories": one} for at, one in enumerate(teachers, start=1)]
    student = {"kind": "opd", "dataset": tasks, "teachers": named}
    return [{"kind": "synthesise"}, *experts, student]


def test_a_run_practises_on_tasks_and_keeps_which(
    project: Project, owner: User, api: Api, page: Client, make: Make
) -> None:
    tasks = make("tasks", TASK)
    stages: list[dict[str, Any]] = [
        {"kind": "synthesise"},
        {"kind": "sft", "source": "accepted", "practice": {"dataset": tasks.pk}, "steps": 60},
        {"kind": "dpo", "practice": {"dataset": tasks.pk}},
        {"kind": "opd", "dataset": tasks.pk, "teachers": [{"stage": 1}]},
    ]
    run = launched(project, owner, stages)
    found = api("GET", f"runs/{run.pk}").json()["datasets"]
    assert [(one["stage"], one["version_id"]) for one in found] == [
        (n, tasks.pk) for n in (1, 2, 3)
    ]
    address = f"datasets/{tasks.dataset_id}/versions/{tasks.number}/lineage"
    assert [one["stage"] for one in api("GET", address).json()["learners"]] == [1, 2, 3]
    for name in ("run_config", "run_lineage"):
        assert "stage 2" in page.get(reverse(name, args=[run.pk])).content.decode()
    with pytest.raises(RefusedError, match="launched with"):
        services.delete_dataset_version(tasks, owner)
    tried = services.launch_run(
        project, owner, services.check_spec(run.spec), services.Launch(dry_run=True)
    )
    assert tried.stage_datasets.count() == 3, "a dry run reads what the run will read"


@pytest.mark.usefixtures("at_ingest")
def test_an_attempt_reads_the_tasks_that_its_stage_practises_on(
    project: Project, owner: User, make: Make
) -> None:
    tasks = make("tasks", TASK)
    stages: list[dict[str, Any]] = [
        {"kind": "synthesise"},
        {"kind": "dpo", "practice": {"dataset": tasks.pk}},
    ]
    driver = start(launched(project, owner, stages))
    answer = ingest("GET", f"datasets/{tasks.pk}", driver.token)
    text = zstandard.ZstdDecompressor().decompressobj().decompress(downloaded(answer))
    assert json.loads(text) == TASK


def test_practice_on_rows_that_are_no_tasks_is_refused_at_launch(
    project: Project, owner: User, outsider: User, make: Make
) -> None:
    rows, answers = make("trajectories", TRAJECTORY), make("tasks", {**TASK, "answer": ["b"]})
    foreign = make_in(Project.objects.get(name="Elsewhere"), outsider, "tasks", TASK)

    def practised(version: str) -> str:
        stage = {"kind": "dpo", "practice": {"dataset": version}}
        found = refusals(project, owner, [{"kind": "synthesise"}, stage])
        assert set(found) == {"stages.1.practice.dataset"}
        return found["stages.1.practice.dataset"]

    assert practised(rows.pk).endswith("holds trajectories; practice plays tasks.")
    assert "row 1, answer" in practised(answers.pk)
    assert practised(foreign.pk).startswith(f"There is no dataset version {foreign.pk} in this")


def test_a_student_s_tasks_must_each_have_a_teacher(
    project: Project, owner: User, page: Client, make: Make
) -> None:
    tasks = make(
        "tasks", TASK, {**TASK, "prompt": "c", "category": "river"}, {**TASK, "prompt": "d"}
    )
    stages = taught(tasks.pk, ["city"], ["sea"])
    found = refusals(project, owner, stages)
    assert set(found) == {
        "stages.3.teachers.1.categories", "stages.3.teachers", "stages.3.dataset",
    }  # fmt: skip
    assert "its dataset has tasks of city and river only" in found["stages.3.teachers.1.categories"]
    assert found["stages.3.teachers"].startswith("Nobody teaches tasks of river:")
    body = {"text": json.dumps({"name": "x", "stages": stages})}
    address = f"/projects/{project.pk}/launch/check"
    told = page.post(address, json.dumps(body), content_type="application/json").json()["problems"]
    assert {one["path"] for one in told} == set(found)
    gate = {"gate": {"shares": {"city": 1.0}}}
    found = refusals(project, owner, taught(tasks.pk, ["city"], ["river"]), pool=gate)
    assert "both must name the same categories" in found["stages.3.dataset"]
    run = launched(project, owner, taught(tasks.pk, ["city"], ["river"]))
    assert run.stage_datasets.get().stage == 3


def test_a_checkpoint_is_judged_by_all_tasks_of_a_dataset(
    project: Project, owner: User, api: Api, page: Client, make: Make
) -> None:
    tasks = make("tasks", TASK)
    driver = start(services.launch_run(project, owner, services.check_spec(SPEC)))
    checkpoint = Checkpoint.objects.create(
        run=driver.run, attempt=driver.attempt, stage=1, step=1, policy_version=1,
        path="checkpoints/1", files={"a": {"size": 1, "sha256": "0" * 64}}, final=True,
        created_at=driver.run.created_at,
    )  # fmt: skip
    shown = page.get(reverse("run_checkpoints", args=[driver.run.pk])).content.decode()
    assert f'<option value="{tasks.pk}">' in shown
    assert "data-find" not in shown
    for number in range(2, 52):
        fields = {"number": number, "blob": tasks.blob, "rows": 1, "size": 1}
        DatasetVersion.objects.create(dataset=tasks.dataset, **fields)
    shown = page.get(reverse("run_checkpoints", args=[driver.run.pk])).content.decode()
    assert f'<option value="{tasks.pk}">' not in shown
    finds = f'data-find="dataset-versions?kind=tasks&amp;project={project.pk}"'
    assert f'{finds} data-fills="#evaluate-tasks"' in shown
    form = {"checkpoint": checkpoint.pk, "tasks": tasks.pk, "trials": "1", "temperature": "0"}
    page.post(reverse("run_evaluate", args=[driver.run.pk]), form)
    path = f"checkpoints/{checkpoint.pk}/evaluate"
    assert api("POST", path, {"dataset": tasks.pk}).status_code == 201
    for run in driver.run.children.all():
        assert run.spec["evaluation"]["dataset"] == tasks.pk
        assert run.spec["stages"][1]["tasks"] == "held_out"
        assert run.stage_datasets.get().version == tasks
    assert driver.run.children.count() == 2
    refused = api("POST", path, {"dataset": tasks.pk, "hops": [3]})
    assert refused.status_code == 422 and "of a dataset" in refused.json()["detail"]
    assert api("POST", path, {"dataset": "ver_0000000000000000"}).status_code == 422
    assert api("POST", path, {"dataset": "tasks"}).status_code == 422
