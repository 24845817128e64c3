"""A config of a megabyte, or one that is nested deeply: pages stay, and what is cut says so."""

import copy
import json
from typing import Any

import pytest
import yaml
from django.test import Client

from engine.spec import ExperimentSpec
from tests.webapp.support import Api
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.frozen_spec import spec_text
from webapp.experiments.models import Run
from webapp.experiments.queries import config_differences, flat_spec
from webapp.experiments.services.external import MAX_CONFIG

LARGE = {f"group_{i}": {f"key_{j}": "v" * 20 for j in range(30)} for i in range(950)}


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"end": 1}
    for _ in range(depth):
        found = {"a": found}
    return found


def external(project: Project, user: User, config: dict[str, Any], name: str) -> Run:
    launch = services.Launch(experiment="large", name=name)
    return services.begin_external(project, user, config, launch).run


@pytest.fixture
def large(project: Project, owner: User) -> Run:
    assert 900_000 < len(json.dumps(LARGE)) < MAX_CONFIG
    return external(project, owner, LARGE, "first")


def test_the_page_of_a_large_config_does_not_carry_it(page: Client, large: Run) -> None:
    answer = page.get(f"/runs/{large.pk}/config")
    assert answer.status_code == 200
    assert len(answer.content) < 100_000
    assert 'id="config-tree"' in answer.content.decode()


def test_a_small_one_is_text_as_before(page: Client, run: Run) -> None:
    text = page.get(f"/runs/{run.pk}/config").content.decode()
    assert 'id="spec-text"' in text and "config-tree" not in text


def test_every_difference_of_two_large_ones_is_found() -> None:
    other = copy.deepcopy(LARGE)
    other["group_7"]["key_3"] = "w"
    del other["group_900"]["key_29"]
    found = config_differences([LARGE, other])
    assert [(one.path, one.values[1]) for one in found] == [
        ("group_7.key_3", "w"),
        ("group_900.key_29", None),
    ]


def test_leaves_are_told_in_order_however_deep() -> None:
    deep = nested(5_000)
    assert flat_spec(deep) == [(".".join(["a"] * 5_000 + ["end"]), 1)]
    assert flat_spec({"a": [1, 2], "b": [{"c": 1}, 2], "d": {}}) == [
        ("a", [1, 2]),
        ("b.0.c", 1),
        ("b.1", 2),
        ("d", {}),
    ]


def test_a_deep_one_opens(page: Client, project: Project, owner: User) -> None:
    run = external(project, owner, nested(800), "deep")
    assert page.get(f"/runs/{run.pk}/config").status_code == 200
    assert json.loads(spec_text(run)) == run.spec, "JSON, where YAML's writer gives up"


def test_pages_that_compare_large_ones_answer(
    page: Client, api: Api, large: Run, project: Project, owner: User
) -> None:
    other = external(project, owner, {**LARGE, "seed": 5}, "second")
    services.edit_experiment(large.experiment_id, owner, baseline=large)
    rows = page.get(f"/experiments/{large.experiment_id}/").context["rows"]
    (found,) = [row for row in rows if row.run.pk == other.pk]
    assert [one.path for one in found.changes] == ["config.seed"]
    told = api("GET", f"compare?runs={large.pk},{other.pk}").json()["differences"]
    assert [one["path"] for one in told if one["path"].startswith("config")] == ["config.seed"]


def test_one_beyond_the_limit_is_refused_with_a_sentence(api: Api) -> None:
    body = {"name": "x", "config": {"text": "y" * MAX_CONFIG}}
    answer = api("POST", "external-runs", body)
    assert answer.status_code == 422
    assert "at most 1,000,000 characters" in answer.json()["detail"]


def test_a_run_of_another_trainer_is_no_spec_to_clone(
    page: Client, large: Run, project: Project
) -> None:
    answer = page.get(f"/projects/{project.pk}/launch/?clone={large.pk}")
    assert "whose config is no spec" in answer.content.decode()
    assert answer.context["parent"] is None and len(answer.content) < 200_000


def test_fields_stand_in_the_order_of_the_schema(run: Run) -> None:
    run.refresh_from_db()  # from a column that keeps no order
    shown = yaml.safe_load(spec_text(run))
    assert shown == run.spec
    assert list(shown) == list(ExperimentSpec.model_fields)
    assert [next(iter(stage)) for stage in shown["stages"]] == ["kind"] * len(shown["stages"])
