"""Deleting and making again: a name is free once its run is gone, what is used stays."""

import json
from typing import Any

import pytest
from django.db.models import ProtectedError

from tests.webapp.support import Api, Driver
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.experiments.services import Launch


def test_a_name_is_free_again_once_its_run_is_deleted(
    project: Project, owner: User, launch: Any, api: Api
) -> None:
    first = launch()
    body = {"project": project.pk, "spec": first.spec, "name": "again", "experiment": "question"}
    made = json.loads(api("POST", "runs", body).content)
    services.stop(made["id"], owner)
    services.archive(made["id"], owner)
    assert api("DELETE", f"runs/{made['id']}").status_code == 204
    answer = api("POST", "runs", body)
    assert answer.status_code == 201, answer.content
    again = json.loads(answer.content)
    assert (again["name"], again["id"] != made["id"]) == ("again", True)
    assert api("GET", f"runs/{made['id']}").status_code == 404


def test_what_a_run_refers_to_cannot_be_deleted_under_it(driver: Driver) -> None:
    version = driver.run.reward_scheme
    assert version is not None
    with pytest.raises(ProtectedError):
        version.scheme.delete()
    assert Run.objects.get(pk=driver.run.pk).reward_scheme == version


def test_a_run_whose_parent_is_deleted_keeps_everything_of_its_own(
    project: Project, owner: User, launch: Any
) -> None:
    parent = launch()
    spec = services.check_spec(parent.spec)
    child = services.launch_run(project, owner, spec, Launch(parent=parent))
    services.stop(parent.pk, owner)
    services.archive(parent.pk, owner)
    services.delete_run(parent.pk, owner)
    child.refresh_from_db()
    assert (child.parent, child.spec) == (None, parent.spec)
