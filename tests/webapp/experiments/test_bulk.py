"""One change to many runs: what is done, what is refused, and that all are those of the filter."""

from collections.abc import Callable

import pytest

from tests.webapp.support import Api, person
from webapp.accounts.models import AuditEntry, Project, Role, User
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.problems import RefusedError

Launcher = Callable[..., Run]


def test_many_are_tagged_at_once_and_the_log_says_who(
    project: Project, owner: User, launch: Launcher
) -> None:
    first, second = launch(tags=["a"]), launch()
    changed = services.change_runs(project, owner, Run.objects.all(), "tag", "new")
    assert changed.done == 2 and not changed.refused
    first.refresh_from_db()
    assert first.tags == ["a", "new"]
    entry = AuditEntry.objects.get(action="runs.tag")
    assert (entry.user, entry.detail["runs"]) == (owner, 2)
    assert set(entry.detail["ids"]) == {first.pk, second.pk}
    services.change_runs(project, owner, Run.objects.filter(pk=first.pk), "untag", "a")
    first.refresh_from_db()
    assert first.tags == ["new"]


def test_a_run_with_too_many_tags_is_refused_and_the_others_are_not(
    project: Project, owner: User, launch: Launcher
) -> None:
    full, free = launch(tags=[f"t{n}" for n in range(20)]), launch()
    changed = services.change_runs(project, owner, Run.objects.all(), "tag", "new")
    assert changed.done == 1 and [run.pk for run, _ in changed.refused] == [full.pk]
    free.refresh_from_db()
    assert free.tags == ["new"]
    for wrong in ("", "two words"):
        with pytest.raises(RefusedError):
            services.change_runs(project, owner, Run.objects.all(), "tag", wrong)


def test_stopping_counts_what_had_not_ended_and_archiving_what_had(
    project: Project, owner: User, launch: Launcher
) -> None:
    ended, queued = launch(), launch()
    services.stop(ended.pk, owner)
    changed = services.change_runs(project, owner, Run.objects.all(), "archive")
    assert changed.done == 1
    assert [(run.pk, why) for run, why in changed.refused] == [
        (queued.pk, "This run is queued: stop it before you archive it.")
    ]
    assert services.change_runs(project, owner, Run.objects.all(), "stop").done == 1
    assert services.change_runs(project, owner, Run.objects.all(), "stop").done == 0
    assert services.change_runs(project, owner, Run.objects.all(), "unarchive").done == 2
    assert not Run.objects.exclude(archived_at=None).exists()


def test_runs_of_another_project_are_never_touched(
    project: Project, owner: User, launch: Launcher
) -> None:
    launch()
    elsewhere = Project.objects.create(team=project.team, name="Elsewhere")
    assert services.change_runs(elsewhere, owner, Run.objects.all(), "tag", "x").done == 0


def test_the_api_changes_named_runs_or_all_that_match(
    api: Api, project: Project, launch: Launcher
) -> None:
    first, _ = launch(tags=["one"]), launch()
    named = {"action": "tag", "tag": "x", "runs": [first.pk]}
    assert api("POST", "run-changes", named).json() == {"done": 1, "refused": []}
    matching = {"action": "tag", "tag": "y", "all": True, "q": "tag:one"}
    assert api("POST", "run-changes", matching).json()["done"] == 1
    assert api("POST", "run-changes", {**named, "all": True}).status_code == 422
    assert api("POST", "run-changes", {"action": "tag", "tag": "x"}).status_code == 422
    first.refresh_from_db()
    assert first.tags == ["one", "x", "y"]
    viewer = Api(person("viewer", project, Role.VIEWER))
    assert viewer("POST", "run-changes", named).status_code == 403
