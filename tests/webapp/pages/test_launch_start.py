"""What the Launch page begins with, and the stored versions that it puts into a spec."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engine.spec import load_spec
from tests.webapp.support import SPEC, Api
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import DatasetVersion, RewardSchemeVersion, Run
from webapp.experiments.recipes import recipes
from webapp.experiments.services.schemes import check_definition
from webapp.experiments.services.stage_datasets import LEARNS
from webapp.experiments.spec_text import MAX_SPEC, set_block
from webapp.experiments.stored import with_dataset, with_reward
from webapp.problems import RefusedError

PAIR = {"prompt": "p", "chosen": "a", "rejected": "b"}
TERMS = [{"kind": "exact_answer"}, {"kind": "overlong", "weight": 0.5, "budget": 90, "cache": 40}]


@pytest.fixture
def scheme(project: Project, owner: User) -> RewardSchemeVersion:
    return services.create_scheme(
        project, owner, check_definition({"name": "strict", "terms": TERMS})
    )


def version_of(project: Project, user: User, kind: str, *rows: Any) -> DatasetVersion:
    dataset = services.create_dataset(project, user, f"kept {kind}", kind)
    lines = [json.dumps(row).encode() for row in rows]
    return services.add_dataset_version(dataset, user, lines, source={"kind": "upload"})


@pytest.fixture
def pairs(project: Project, owner: User) -> DatasetVersion:
    return version_of(project, owner, "pairs", PAIR)


@pytest.fixture
def trajectories(project: Project, owner: User) -> DatasetVersion:
    return version_of(project, owner, "trajectories", {"id": "t1", "prompt": "p", "steps": []})


def text_in(page: Client, address: str) -> str:
    answer = page.get(address)
    assert answer.status_code == 200
    return str(answer.context["values"]["text"])


def checked(page: Client, project: Project, **body: Any) -> Any:
    address = f"/projects/{project.pk}/launch/check"
    return page.post(address, json.dumps(body), content_type="application/json")


def test_a_stored_reward_scheme_lands_in_every_recipe(scheme: RewardSchemeVersion) -> None:
    for one in recipes():
        text = with_reward(one.text, scheme)
        spec, problems = load_spec(text)
        assert spec is not None, problems
        assert [term.kind for term in spec.reward.terms] == ["exact_answer", "overlong"]
        assert spec.model_copy(update={"reward": None}) == load_spec(one.text)[0].model_copy(  # type: ignore[union-attr]
            update={"reward": None}
        )
        assert text.count("#") >= one.text.count("#") - 2, "comments elsewhere stay"


@pytest.mark.parametrize(
    "text",
    ["name: a\nreward: composite\nseed: 1\n", "reward: {name: x}", "name: a", "", "a: 1\nreward:"],
)
def test_a_block_replaces_a_field_or_is_added(text: str) -> None:
    value = {"name": "n", "terms": [{"kind": "exact_answer"}]}
    before = yaml.safe_load(text) or {}
    assert yaml.safe_load(set_block(text, "reward", value)) == {**before, "reward": value}


def test_the_address_puts_a_reward_scheme_in(
    page: Client, project: Project, scheme: RewardSchemeVersion
) -> None:
    text = text_in(page, f"/projects/{project.pk}/launch/?recipe=smoke&reward={scheme.pk}")
    found = checked(page, project, text=text).json()
    assert not found["problems"]
    assert (found["reward"]["id"], found["reward"]["number"]) == (scheme.pk, 1)
    page.post(f"/projects/{project.pk}/launch/", {"text": text, "tags": "one, two"})
    run = Run.objects.get()
    assert run.reward_scheme == scheme, "linked, not stored again"
    assert run.tags == ["smoke", "one", "two"]


def test_a_scheme_is_chosen_in_the_form_and_by_program(
    page: Client, api: Api, project: Project, scheme: RewardSchemeVersion
) -> None:
    body = {"text": yaml.safe_dump(SPEC), "changes": [{"reward": scheme.pk}]}
    found = checked(page, project, **body).json()
    assert found["spec"]["reward"]["name"] == "strict"
    assert checked(page, project, text="name: a", changes=[{"reward": "ver_0"}]).status_code == 404
    answer = api("POST", "runs", {"spec": SPEC, "reward": scheme.pk})
    assert answer.status_code == 201
    assert answer.json()["reward_scheme_id"] == scheme.pk
    assert api("POST", "runs", {"spec": SPEC, "reward": "ver_0"}).status_code == 404


def test_versions_of_other_projects_are_not_there(
    page: Client, project: Project, outsider: User
) -> None:
    other = Project.objects.get(memberships__user=outsider)
    theirs = services.create_scheme(other, outsider, check_definition({"name": "theirs"}))
    rows = version_of(other, outsider, "pairs", PAIR)
    address = f"/projects/{project.pk}/launch/"
    assert page.get(f"{address}?reward={theirs.pk}").status_code == 404
    assert page.get(f"{address}?dataset={rows.pk}&as=dpo").status_code == 404
    assert page.get(f"{address}?clone=run_0").status_code == 404
    assert page.get(f"{address}?preset=pre_0").status_code == 404


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_a_dataset_lands_in_a_stage_of_every_recipe(
    page: Client,
    project: Project,
    pairs: DatasetVersion,
    trajectories: DatasetVersion,
    kind: str,
) -> None:
    version = pairs if kind == "dpo" else trajectories
    for one in recipes():
        address = f"/projects/{project.pk}/launch/?recipe={one.name}&dataset={version.pk}"
        text = text_in(page, f"{address}&as={kind}")
        found = checked(page, project, text=text).json()
        assert not found["problems"], one.name
        stages = [stage for stage in found["spec"]["stages"] if stage["kind"] == kind]
        assert stages[0]["dataset"] == version.pk
        assert text_in(page, address) == text, "the kind of its rows says as what"


def test_a_student_is_taught_on_a_dataset_where_the_recipe_has_one(
    page: Client, project: Project, owner: User
) -> None:
    rows = [{"prompt": "a", "answer": "b", "category": name} for name in ("3 hops", "4 hops")]
    version = version_of(project, owner, "tasks", *rows)
    address = f"/projects/{project.pk}/launch/?recipe=distil&dataset={version.pk}&as=opd"
    found = checked(page, project, text=text_in(page, address)).json()
    assert not found["problems"]
    assert found["spec"]["stages"][4]["dataset"] == version.pk
    for wrong in ("practice", "evaluate", "synthesise", "<b>"):
        answer = page.get(address.replace("as=opd", f"as={wrong}"))
        assert answer.status_code == 200
        assert f"reads no dataset: take {', '.join(LEARNS)}, evaluation." in answer.content.decode()
        assert "<b>" not in answer.content.decode()


def test_what_a_stage_practises_on_is_offered_however_old_it_is(
    page: Client, project: Project, owner: User
) -> None:
    version = version_of(project, owner, "tasks", {"prompt": "a", "answer": "b"})
    for number in range(2, 60):
        fields = {"number": number, "blob": version.blob, "rows": 1, "size": 1}
        DatasetVersion.objects.create(dataset=version.dataset, **fields)
    stage = {"kind": "dpo", "practice": {"dataset": version.pk}}
    run = services.launch_run(
        project, owner, services.check_spec({**SPEC, "stages": [*SPEC["stages"], stage]})
    )
    answer = page.get(f"/projects/{project.pk}/launch/?clone={run.pk}")
    offered = answer.context["stored"]["datasets"]
    assert offered["more"] and version.pk in {one["id"] for one in offered["items"]}


@pytest.mark.parametrize("categories", [["3 hops", "4 hops"], ["city"]])
def test_tasks_land_in_every_recipe_to_train_on_and_to_judge_by(
    page: Client, project: Project, owner: User, categories: list[str]
) -> None:
    rows = [{"prompt": "a", "answer": "b", "category": name} for name in categories]
    version = version_of(project, owner, "tasks", *rows)
    for one in recipes():
        address = f"/projects/{project.pk}/launch/?recipe={one.name}&dataset={version.pk}"
        found = checked(page, project, text=text_in(page, f"{address}&as=rl")).json()
        assert not found["problems"], one.name
        stages = [stage for stage in found["spec"]["stages"] if stage["kind"] == "rl"]
        assert stages[0]["dataset"] == version.pk
        found = checked(page, project, text=text_in(page, f"{address}&as=evaluation")).json()
        assert not found["problems"], one.name
        assert found["spec"]["evaluation"]["dataset"] == version.pk


def test_a_fork_keeps_its_first_stage_and_learns_the_dataset_alone(pairs: DatasetVersion) -> None:
    spec, _ = load_spec(yaml.safe_dump(SPEC))
    assert spec is not None
    text = with_dataset(yaml.safe_dump(spec.model_dump(mode="json")), pairs, "dpo", alone=True)
    found, problems = load_spec(text)
    assert not problems
    assert [stage.kind for stage in found.stages] == ["synthesise", "dpo"]  # type: ignore[union-attr]


def test_rows_that_no_such_stage_learns_are_named(
    page: Client, project: Project, pairs: DatasetVersion, trajectories: DatasetVersion
) -> None:
    with pytest.raises(RefusedError, match="holds pairs; a stage of kind sft learns from traj"):
        with_dataset("stages: []", pairs, "sft")
    address = f"/projects/{project.pk}/launch/?dataset={pairs.pk}&as=sft"
    assert "holds pairs" in page.get(address).content.decode()
    stage = {"kind": "dpo", "dataset": trajectories.pk}
    text = yaml.safe_dump({**SPEC, "stages": [*SPEC["stages"], stage]})
    (problem,) = checked(page, project, text=text).json()["problems"]
    assert problem["path"] == "stages.3.dataset"
    assert problem["line"] == 1 + text[: text.index("dataset:")].count("\n")


BROKEN: dict[str, tuple[dict[str, Any], set[str]]] = {
    "evaluate": (
        {"kind": "evaluate", "trials": 4},
        {"stages.3.trials", "stages.3.temperature"},
    ),
    "dpo": (
        {"kind": "dpo", "loss": "sft", "beta": 0.2},
        {"stages.3.beta", "stages.3.loss"},
    ),
    "opd": (
        {"kind": "opd", "teachers": [{"stage": 1}], "reward_weight": 1.0, "group_size": 1},
        {"stages.3.reward_weight", "stages.3.group_size"},
    ),
    "source: dataset": (
        {"kind": "sft", "source": "dataset"},
        {"stages.3.dataset", "stages.3.source"},
    ),
    "rl": (
        {"kind": "rl", "refill_rounds": 2, "dynamic_sampling": False},
        {"stages.3.refill_rounds", "stages.3.dynamic_sampling"},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_fields_that_disagree_are_both_named_with_their_lines(
    page: Client, project: Project, name: str
) -> None:
    stage, paths = BROKEN[name]
    text = yaml.safe_dump({**SPEC, "stages": [*SPEC["stages"], stage]}, sort_keys=False)
    problems = checked(page, project, text=text).json()["problems"]
    assert {one["path"] for one in problems} == paths
    assert all(one["line"] for one in problems)


def test_a_run_of_another_version_opens_with_its_problems_and_loses_nothing(
    page: Client, project: Project, run: Run
) -> None:
    old = {**run.spec, "pool": {**run.spec["pool"], "lag_limit": 3}}
    old["stages"][1]["learning_rate"] = 0.1
    Run.objects.filter(pk=run.pk).update(spec=old)
    text = text_in(page, f"/projects/{project.pk}/launch/?clone={run.pk}")
    assert yaml.safe_load(text) == old
    found = checked(page, project, text=text, parent=run.pk).json()
    assert {one["path"] for one in found["problems"]} == {
        "pool.lag_limit",
        "stages.1.learning_rate",
    }
    assert found["differences"] == []
    shown = text.replace("  lag_limit: 3\n", "")
    found = checked(page, project, text=shown, parent=run.pk).json()
    assert [row["path"] for row in found["differences"]] == ["pool.lag_limit"]
    assert "lag_limit: 3" in page.get(f"/runs/{run.pk}/config").content.decode()
    answer = page.post(f"/projects/{project.pk}/launch/", {"text": text, "parent": run.pk})
    assert answer.status_code == 422
    assert "lag_limit: 3" in answer.content.decode(), "what was written is still there"


def test_a_clone_is_told_each_field_that_differs(page: Client, project: Project, run: Run) -> None:
    text = text_in(page, f"/projects/{project.pk}/launch/?clone={run.pk}")
    changes = [{"path": "seed", "value": 7}, {"path": "pool.capacity", "value": 50}]
    found = checked(page, project, text=text, parent=run.pk, changes=changes).json()
    assert found["differences"] == [
        {"path": "pool.capacity", "values": [run.spec["pool"]["capacity"], 50]},
        {"path": "seed", "values": [0, 7]},
    ]


def test_a_spec_beyond_the_limit_is_refused_with_what_to_do(
    page: Client, api: Api, project: Project
) -> None:
    text = yaml.safe_dump(SPEC) + "# " + "x" * MAX_SPEC
    for answer in (
        checked(page, project, text=text),
        api("POST", "runs", {"spec": text}),
        api("POST", "runs", {"spec": {**SPEC, "description": "y" * MAX_SPEC}}),
        api("POST", "specs/validate", {"text": text}),
        api("POST", "specs/validate", {"spec": {**SPEC, "description": "y" * MAX_SPEC}}),
    ):
        assert answer.status_code == 413
        assert re.search(
            r"at most 200,000 characters, not [\d,]+: put what", answer.json()["detail"]
        )
    answer = page.post(f"/projects/{project.pk}/launch/", {"text": text})
    assert answer.status_code == 413
    assert not Run.objects.exists()


@pytest.mark.parametrize("depth", [300, 700, 930])
def test_data_that_is_nested_deeply_is_refused(api: Api, owner: User, depth: int) -> None:
    spec: Any = "x"
    for _ in range(depth):
        spec = [spec]
    for path in ("specs/validate", "runs"):
        assert api("POST", path, {"spec": {**SPEC, "description": spec}}).status_code < 500


@pytest.mark.parametrize("depth", [300, 990, 1100, 20_000])
def test_a_text_that_is_nested_deeply_is_named_and_breaks_nothing(
    page: Client, project: Project, depth: int
) -> None:
    text = "name: a\nstages: " + "[" * depth + "]" * depth
    answer = checked(page, project, text=text)
    assert answer.status_code == 200
    assert answer.json()["problems"]


NAMES = ["🐫 caravan", "\u202eتجربة", "<script>alert(1)</script>", "<", "é" * 120, "数据" * 60]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_kept_as_it_was_given_and_shown_as_text(
    page: Client, project: Project, name: str
) -> None:
    given = {"text": yaml.safe_dump(SPEC), "name": name, "experiment": name, "notes": name}
    answer = page.post(f"/projects/{project.pk}/launch/", given)
    run = Run.objects.select_related("experiment").get()
    assert answer.headers["Location"] == f"/runs/{run.pk}/"
    assert (run.name, run.experiment.name, run.notes) == (name, name, name)
    for address in (
        f"/runs/{run.pk}/",
        f"/runs/{run.pk}/config",
        f"/experiments/{run.experiment_id}/",
        f"/projects/{project.pk}/experiments/",
        f"/projects/{project.pk}/launch/?clone={run.pk}",
    ):
        shown = page.get(address)
        assert shown.status_code == 200
        assert "<script>alert" not in shown.content.decode()


def test_a_name_that_is_too_long_is_refused_and_the_text_stays(
    page: Client, project: Project
) -> None:
    given = {"text": yaml.safe_dump(SPEC), "name": "n" * 121}
    answer = page.post(f"/projects/{project.pk}/launch/", given)
    assert answer.status_code == 422
    assert answer.context["values"]["text"] == given["text"]


def test_its_queries_do_not_grow_with_what_is_stored(
    page: Client,
    project: Project,
    owner: User,
    launch: Callable[..., Run],
    scheme: RewardSchemeVersion,
) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as found:
            assert page.get(f"/projects/{project.pk}/launch/").status_code == 200
        return len(found)

    count()
    few = count()
    for number in range(8):
        definition = {"name": "strict", "terms": [{"kind": "exact_answer", "weight": number + 2}]}
        services.add_scheme_version(scheme.scheme, owner, check_definition(definition))
        services.save_preset(project, owner, f"preset {number}", yaml.safe_dump(SPEC))
        version_of(project, owner, "pairs", PAIR).dataset.delete()
        launch(name=f"experiment {number}")
    assert count() == few
