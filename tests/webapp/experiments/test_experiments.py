"""Launch freezes, filters find, pages go on where they stopped, versions are immutable."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import zstandard
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp.support import SPEC, Api, Driver, downloaded
from webapp import storage
from webapp.accounts.access import Actor
from webapp.accounts.models import Project, User
from webapp.experiments import queries, recipes, services
from webapp.experiments.models import DatasetVersion, Experiment, RewardSchemeVersion, Run
from webapp.monitoring.headline import metric_named
from webapp.monitoring.models import Series
from webapp.paging import keyset
from webapp.problems import RefusedError

Launcher = Callable[..., Run]


def test_what_was_launched_is_frozen(run: Run, owner: User) -> None:
    spec = services.check_spec(SPEC)
    assert run.spec == spec.model_dump(mode="json")
    assert run.reward_scheme is not None
    assert run.reward_scheme.definition == spec.reward.model_dump(mode="json")
    assert run.code_version
    assert run.steps == 120
    services.edit_run(run.pk, owner, notes="new")
    assert Run.objects.get().spec == run.spec


def test_runs_of_one_question_share_experiment_and_scheme(launch: Launcher) -> None:
    first, second = launch(), launch()
    assert first.experiment == second.experiment
    assert first.reward_scheme == second.reward_scheme
    assert first.name != second.name
    third = launch(reward={"terms": [{"kind": "exact_answer", "weight": 2.0}]})
    assert third.reward_scheme is not None and first.reward_scheme is not None
    assert third.reward_scheme.scheme == first.reward_scheme.scheme
    assert third.reward_scheme.number == 2


def test_an_experiment_is_found_whatever_its_case(
    project: Project, owner: User, launch: Launcher
) -> None:
    run = launch()
    spec = services.check_spec(SPEC)
    again = services.launch_run(project, owner, spec, services.Launch(experiment="TRY"))
    assert again.experiment == run.experiment


def test_the_quick_start_is_launched_once(db: None, capsys: Any) -> None:
    call_command("ensure_admin")
    capsys.readouterr()
    call_command("launch_demo")
    run = Run.objects.get()
    assert capsys.readouterr().out.strip() == run.pk
    assert run.is_demo
    call_command("launch_demo")
    assert capsys.readouterr().out == ""
    assert Run.objects.count() == 1


def test_going_down_without_a_driver_interrupts_after_the_wait(driver: Driver, capsys: Any) -> None:
    call_command("interrupt_runs", "--wait", "0")
    assert capsys.readouterr().out.strip() == f"{driver.run.pk} interrupted"
    call_command("resume_interrupted")
    assert capsys.readouterr().out.strip() == driver.run.pk


def test_recipes_can_be_launched_with_changes(api: Api) -> None:
    for recipe in api("GET", "recipes").json():
        services.check_spec(recipe["text"])
    overrides = {"seed": 7, "stages.1.steps": 60, "rollout.workers": 2}
    answer = api("POST", "runs", {"recipe": "kg-search", "overrides": overrides})
    assert answer.status_code == 201, answer.content
    spec = answer.json()["spec"]
    assert (spec["seed"], spec["stages"][1]["steps"], spec["rollout"]["workers"]) == (7, 60, 2)


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"stages.9.steps": 1}, "stages.9.steps"),
        ({"stages.x.steps": 1}, "stages.x.steps"),
        ({"name.x": 1}, "name.x"),
        ({"rollout.worker": 1}, "rollout.worker"),
    ],
)
def test_a_change_of_nothing_is_refused(api: Api, overrides: dict[str, Any], path: str) -> None:
    answer = api("POST", "runs", {"recipe": "kg-search", "overrides": overrides})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == path


def test_an_unknown_recipe_names_those_there_are(db: None) -> None:
    with pytest.raises(RefusedError, match="kg-search"):
        recipes.recipe("../settings")


def test_validation_tells_without_launching(api: Api) -> None:
    good = api("POST", "specs/validate", {"spec": SPEC}).json()
    assert good["valid"] and good["spec"]["seed"] == 0
    bad = api("POST", "specs/validate", {"text": "name: [1"}).json()
    assert not bad["valid"] and bad["problems"]
    assert bad["plan"] is None and bad["advice"] is None
    assert not Run.objects.exists()


def test_validation_plans_the_run_for_the_devices_that_are_named(api: Api) -> None:
    own = api("POST", "specs/validate", {"spec": SPEC}).json()
    assert own["plan"]["memory"] > 0
    assert own["advice"]["devices"].endswith("xcpu")
    named = api("POST", "specs/validate", {"spec": SPEC, "devices": "8xH100"}).json()
    assert named["advice"]["devices"] == "8xH100-80"
    wrong = api("POST", "specs/validate", {"spec": SPEC, "devices": "8xTPU"})
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["path"] == "devices"


@pytest.fixture
def runs(launch: Launcher, project: Project, owner: User) -> dict[str, Run]:
    """Three runs that differ in what filters ask for."""
    plain = launch(seed=1)
    sft_only = launch(name="warm up", stages=SPEC["stages"][:2], tags=["baseline"])
    long = launch(name="long one", stages=[*SPEC["stages"]], seed=3)
    services.stop(sft_only.pk, owner)
    Run.objects.filter(pk=long.pk).update(
        created_at=timezone.now() - timedelta(days=400), notes="with Quotation marks"
    )
    for run, value in [(plain, 0.4), (long, 0.8), (sft_only, float("nan"))]:
        for name in (metric_named("success"), "own/metric"):
            Series.objects.create(
                run=run,
                attempt=run.attempts.get(),
                name=name,
                axis="trainer_step",
                last_value=value,
            )
    Run.objects.filter(pk=plain.pk).update(headline={metric_named("success"): 0.4})
    Run.objects.filter(pk=long.pk).update(headline={metric_named("success"): 0.8})
    return {"plain": plain, "sft": sft_only, "long": long}


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("", {"plain", "sft", "long"}),
        ("status:queued", {"plain", "long"}),
        ("status:active", {"plain", "long"}),
        ("-status:queued", {"sft"}),
        ("algo:cispo", {"plain", "long"}),
        ("-algo:cispo", {"sft"}),
        ("tag:baseline", {"sft"}),
        ("tag:other", set()),
        ("experiment:TRY", {"plain"}),
        ("user:owner", {"plain", "sft", "long"}),
        ("spec.seed:3", {"long"}),
        ("spec.rollout.workers:1", {"plain", "sft", "long"}),
        ("long", {"long"}),
        ('"quotation marks"', {"long"}),
        ("success>0.5", {"long"}),
        ("success>=0.4 success<0.8", {"plain"}),
        ("success=0.8", {"long"}),
        (f"{metric_named('success')}<0.5", {"plain"}),
        ("no/such>0", set()),
        ("created<2026-01-01", {"long"}),
        ("algo:cispo status:queued success<0.5", {"plain"}),
    ],
)
def test_the_filter_language(runs: dict[str, Run], owner: User, q: str, found: set[str]) -> None:
    page = queries.list_runs(Actor(owner), q=q)
    names = {run.pk: name for name, run in runs.items()}
    if q == "created<2026-01-01":
        Run.objects.filter(pk=runs["long"].pk).update(created_at="2025-06-01T00:00:00Z")
        page = queries.list_runs(Actor(owner), q=q)
    assert {names[run.pk] for run in page.items} == found


@pytest.mark.parametrize(
    "q",
    [
        "status:flying",
        "colour:red",
        'name:"open',
        "success>high",
        "spec.a;b:1",
        "spec.name.regex:(a+)+$",
        "spec.in.seed:1",
        "created>soon",
    ],
)
def test_a_filter_that_makes_no_sense_is_named(api: Api, q: str) -> None:
    answer = api("GET", f"runs?q={q}")
    assert answer.status_code == 422
    assert answer.json()["detail"]


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_cannot_be_stored_is_refused(api: Api, run: Run, text: str) -> None:
    answer = api("PATCH", f"runs/{run.pk}", {"notes": text})
    assert answer.status_code == 422
    assert api("GET", f"runs/{run.pk}").json()["notes"] == ""


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(q=st.text(max_size=40))
def test_any_text_is_a_filter_or_a_problem(owner: User, q: str) -> None:
    try:
        queries.list_runs(Actor(owner), q=q)
    except RefusedError as error:
        assert error.detail


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("-success", ["long", "plain", "sft"]),
        ("success", ["plain", "long", "sft"]),
        ("name", ["long", "plain", "sft"]),
        ("created", ["long", "plain", "sft"]),
        ("-own/metric", ["long", "plain", "sft"]),
        ("own/metric", ["plain", "long", "sft"]),
    ],
)
def test_runs_are_sorted_with_missing_values_last(
    runs: dict[str, Run], owner: User, sort: str, order: list[str]
) -> None:
    found: list[str] = []
    cursor = None
    while True:
        page = queries.list_runs(Actor(owner), sort=sort, cursor=cursor, limit=1)
        found += [run.pk for run in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == [runs[name].pk for name in order]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.sampled_from("abc"), min_size=1, max_size=12), limit=st.integers(1, 5))
def test_paging_gives_every_row_once(project: Project, names: list[str], limit: int) -> None:
    Experiment.objects.all().delete()
    made = [
        Experiment.objects.create(project=project, name=f"{index}", notes=notes)
        for index, notes in enumerate(names)
    ]
    rows, cursor = [], None
    while True:
        page = keyset(Experiment.objects.all(), ("-notes", "id"), cursor, limit)
        rows += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert rows == sorted(made, key=lambda row: ([-ord(letter) for letter in row.notes], row.pk))


@pytest.mark.parametrize("cursor", ["x", "!!", "bnVsbA", "W10", "WzEsMiwzXQ", "eyJhIjoxfQ"])
def test_a_made_up_cursor_is_refused(api: Api, cursor: str) -> None:
    answer = api("GET", f"runs?cursor={cursor}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["path"] == "cursor"


def test_lists_ask_the_database_as_often_for_many_runs(
    api: Api, launch: Launcher, django_assert_max_num_queries: Any
) -> None:
    for number in range(2):
        launch(name=f"{number}")
    with django_assert_max_num_queries(100) as few:
        api("GET", "runs?q=algo:cispo&sort=-success")
    for number in range(2, 12):
        launch(name=f"{number}")
    with django_assert_max_num_queries(len(few.captured_queries)):
        assert len(api("GET", "runs?q=algo:cispo&sort=-success").json()["items"]) == 12


def test_a_run_of_many_parts_is_read_in_as_many_queries(
    api: Api, driver: Driver, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(14):
        detail = api("GET", f"runs/{driver.run.pk}").json()
    assert detail["attempts"][0]["state"] == "running"
    assert "token_digest" not in detail["attempts"][0]


def test_archived_runs_are_out_of_the_way(api: Api, run: Run, owner: User) -> None:
    assert api("PATCH", f"runs/{run.pk}", {"archived": True}).status_code == 409
    services.stop(run.pk, owner)
    assert api("PATCH", f"runs/{run.pk}", {"archived": True}).status_code == 200
    assert api("GET", "runs").json()["items"] == []
    assert len(api("GET", "runs?archived=true").json()["items"]) == 1


@pytest.mark.parametrize("tag", ["two words", "-minus", "a" * 41, "a:b", "💥"])
def test_a_tag_that_cannot_be_filtered_by_is_refused(api: Api, run: Run, tag: str) -> None:
    answer = api("POST", f"runs/{run.pk}/tags", {"add": [tag]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "tags"


def test_tags_are_added_and_removed(api: Api, run: Run) -> None:
    api("POST", f"runs/{run.pk}/tags", {"add": ["a", "b", "a"]})
    answer = api("POST", f"runs/{run.pk}/tags", {"add": ["c"], "remove": ["a"]}).json()
    assert answer["tags"] == ["b", "c"]


def test_runs_are_compared_field_by_field(api: Api, launch: Launcher) -> None:
    first, second = launch(seed=1), launch(seed=2, stages=SPEC["stages"][:2])
    for run, value in [(first, 0.5), (second, float("inf"))]:
        Series.objects.create(
            run=run, attempt=run.attempts.get(), name="loss", axis="trainer_step", last_value=value
        )
    answer = api("GET", f"compare?runs={first.pk},{second.pk}").json()
    differences = {row["path"]: row["values"] for row in answer["differences"]}
    assert differences["seed"] == [1, 2]
    assert differences["stages.2.kind"] == ["rl", None]
    assert "name" not in differences
    assert answer["metrics"] == {"loss": [0.5, "Infinity"]}
    assert [series["run"] for series in answer["series"]] == [first.pk, second.pk]


def test_a_baseline_is_a_run_of_the_experiment(api: Api, launch: Launcher) -> None:
    run, other = launch(), launch(name="other question")
    path = f"experiments/{run.experiment_id}"
    assert api("PATCH", path, {"baseline": other.pk}).status_code == 422
    assert api("PATCH", path, {"baseline": run.pk}).json()["baseline_id"] == run.pk
    assert api("PATCH", path, {"notes": "x"}).json()["baseline_id"] == run.pk


def test_a_changed_scheme_is_a_new_version(api: Api) -> None:
    one = {"name": "mine", "terms": [{"kind": "exact_answer", "weight": 1.0}]}
    two = {"name": "mine", "terms": [{"kind": "exact_answer", "weight": 2.0}]}
    created = api("POST", "reward-schemes", {"definition": one})
    assert (created.status_code, created.json()["number"]) == (201, 1)
    assert api("POST", "reward-schemes", {"definition": one}).status_code == 409
    scheme = RewardSchemeVersion.objects.get().scheme_id
    path = f"reward-schemes/{scheme}/versions"
    assert api("POST", path, {"definition": one}).status_code == 409
    assert api("POST", path, {"definition": two}).json()["number"] == 2
    assert api("POST", path, {"definition": {**two, "terms": []}}).status_code == 422
    versions = api("GET", f"reward-schemes/{scheme}").json()["versions"]
    assert [v["number"] for v in versions] == [2, 1]
    assert versions[1]["definition"]["terms"][0]["weight"] == 1.0


def upload(api: Api, dataset: str, content: bytes) -> Any:
    file = SimpleUploadedFile("rows.jsonl", content)
    return api.client.post(
        f"/api/v1/datasets/{dataset}/versions",
        {"file": file, "note": "first"},
        headers={"Authorization": f"Bearer {api.token}"},
    )


@pytest.fixture
def dataset(api: Api) -> str:
    return str(api("POST", "datasets", {"name": "tasks", "kind": "tasks"}).json()["id"])


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"Question {n}? 问题", "answer": n, "category": f"{n % 2 + 2} hops", "x": [n]}
        for n in range(count)
    ]


def test_uploads_are_versions_of_rows(api: Api, dataset: str) -> None:
    content = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows(7)).encode()
    answer = upload(api, dataset, content + b"\n\n")
    assert answer.status_code == 201, answer.content
    assert (answer.json()["number"], answer.json()["rows"]) == (1, 7)
    assert answer.json()["categories"] == {"2 hops": 4, "3 hops": 3}
    path = f"datasets/{dataset}/versions/1"
    assert api("GET", f"{path}/rows?start=5&count=9").json() == rows(7)[5:]
    download = api("GET", f"{path}/file")
    assert download["Content-Disposition"].startswith("attachment;")
    assert download["X-Content-Type-Options"] == "nosniff"
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(downloaded(download))
    assert [json.loads(line) for line in plain.splitlines()] == rows(7)
    assert upload(api, dataset, content).json()["number"] == 2


def test_every_wrong_row_is_named_and_nothing_is_stored(api: Api, dataset: str) -> None:
    content = b"\n".join(
        [b'{"prompt": "a", "answer": "b"}', b"{", b'{"prompt": ""}', b"[]", b'{"answer": 1}']
    )
    answer = upload(api, dataset, content)
    assert answer.status_code == 422
    paths = {error["path"] for error in answer.json()["errors"]}
    assert paths >= {"rows.2", "rows.3.prompt", "rows.3.answer", "rows.4", "rows.5.prompt"}
    assert not DatasetVersion.objects.exists()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00"])
def test_a_file_without_rows_is_refused(api: Api, dataset: str, content: bytes) -> None:
    assert upload(api, dataset, content).status_code == 422


def test_names_are_taken_once_whatever_their_case(api: Api, dataset: str) -> None:
    answer = api("POST", "datasets", {"name": "TASKS", "kind": "tasks"})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "name"


def test_checkpoints_are_downloaded_by_their_manifest(api: Api, driver: Driver) -> None:
    checkpoint = driver.run.checkpoints.create(
        attempt=driver.attempt,
        stage=1,
        step=1,
        policy_version=1,
        path="checkpoints/1",
        files={"model/weights.bin": {"size": 3}, "gone.bin": {"size": 1}},
        created_at=timezone.now(),
    )
    filesystem, root = storage._place()
    with filesystem.open(f"{root}/runs/{driver.run.pk}/checkpoints/1/model/weights.bin", "wb") as f:
        f.write(b"abc")
    with filesystem.open(f"{root}/runs/{driver.run.pk}/secret", "wb") as f:
        f.write(b"no")
    path = f"checkpoints/{checkpoint.pk}/files"
    answer = api("GET", f"{path}/model/weights.bin")
    assert downloaded(answer) == b"abc"
    assert answer["Content-Length"] == "3"
    assert answer["Content-Disposition"].startswith("attachment;")
    assert api("GET", f"{path}/gone.bin").status_code == 410
    for name in ("../../secret", "..%2F..%2Fsecret", "secret", "model/../../../secret"):
        assert api("GET", f"{path}/{name}").status_code == 404, name
    with pytest.raises(RefusedError):
        services.remove_checkpoint(_resuming_from(checkpoint), None)
    driver.run.attempts.filter(number=2).delete()
    assert api("DELETE", f"checkpoints/{checkpoint.pk}").status_code == 204
    assert api("GET", f"{path}/model/weights.bin").status_code == 410


def _resuming_from(checkpoint: Any) -> Any:
    checkpoint.run.attempts.create(number=2, resume_from=checkpoint)
    return checkpoint
