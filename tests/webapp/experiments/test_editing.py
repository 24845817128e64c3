"""Experiments and runs as people edit them: notes, baseline, archive, and two people at once."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.webapp.support import Api, Driver
from webapp.accounts.models import User
from webapp.experiments import services
from webapp.experiments.models import Experiment, RewardScheme, Run
from webapp.monitoring.headline import HEADLINE


def form_of(client: Client, address: str) -> dict[str, str]:
    """The hidden tag of what the form's writer sees."""
    return {"seen": str(client.get(address).context["seen"])}


@pytest.fixture
def second(editor: User) -> Client:
    client = Client()
    client.force_login(editor)
    return client


def test_two_people_who_edit_an_experiments_notes_lose_nothing(
    page: Client, second: Client, run: Run, owner: User
) -> None:
    address = f"/experiments/{run.experiment_id}/"
    first_form, second_form = form_of(page, address), form_of(second, address)
    page.post(f"{address}edit", {**first_form, "name": "Gate", "notes": "old\r\nours <b>"})
    mine = {"name": "Gate 2", "notes": "old\r\nmine 🐫"}
    told = second.post(f"{address}edit", {**second_form, **mine})
    assert told.status_code == 409
    text = told.content.decode()
    assert f"{owner} saved a change" in text
    assert "ours &lt;b&gt;" in text and "mine 🐫" in text and "Gate 2" in text
    assert Experiment.objects.get(pk=run.experiment_id).notes == "old\nours <b>"
    both = {"seen": told.context["seen"], "name": "Gate", "notes": "old\nours <b>\nmine 🐫"}
    assert second.post(f"{address}edit", both).status_code == 302
    kept = Experiment.objects.get(pk=run.experiment_id)
    assert (kept.name, kept.notes) == ("Gate", "old\nours <b>\nmine 🐫")
    assert "&lt;b&gt;" in page.get(address).content.decode()


def test_two_people_who_edit_a_runs_tags_and_notes_lose_nothing(
    page: Client, second: Client, run: Run
) -> None:
    address = f"/runs/{run.pk}/"
    first_form, second_form = form_of(page, address), form_of(second, address)
    page.post(f"{address}edit", {**first_form, "name": run.name, "tags": "a b", "notes": "one"})
    mine = {"name": run.name, "tags": "c", "notes": "two"}
    told = second.post(f"{address}edit", {**second_form, **mine})
    assert told.status_code == 409
    assert [field.name for field in told.context["differing"]] == ["tags", "notes"]
    run.refresh_from_db()
    assert (run.tags, run.notes) == (["a", "b"], "one")
    second.post(f"{address}edit", {"seen": told.context["seen"], **mine})
    run.refresh_from_db()
    assert (run.tags, run.notes) == (["c"], "two")


def test_a_program_is_told_by_the_tag(api: Api, run: Run) -> None:
    path = f"experiments/{run.experiment_id}"
    tag = api("GET", path)["ETag"]
    assert api("PATCH", path, {"notes": "one"}, **{"If-Match": tag}).status_code == 200
    assert api("PATCH", path, {"notes": "two"}, **{"If-Match": tag}).status_code == 412
    assert Experiment.objects.get().notes == "one"


def test_an_experiment_with_runs_is_archived_not_deleted(
    page: Client, api: Api, run: Run, owner: User
) -> None:
    address = f"/experiments/{run.experiment_id}/"
    told = page.post(f"{address}archive", {"archived": "1"}, follow=True).content.decode()
    assert "Runs of it are active" in told and run.name in told
    services.stop(run.pk, owner)
    assert f"It has runs: {run.name}" in page.post(f"{address}delete", follow=True).content.decode()
    page.post(f"{address}archive", {"archived": "1"})
    listing = f"/projects/{run.project_id}/experiments/"
    assert address not in page.get(listing).content.decode()
    assert address in page.get(f"{listing}?archived=1").content.decode()
    assert api("GET", "experiments").json()["items"] == []
    assert len(api("GET", "experiments?archived=true").json()["items"]) == 1
    assert page.get(f"/runs/{run.pk}/").status_code == 200
    assert api("DELETE", f"experiments/{run.experiment_id}").status_code == 409


def test_a_launch_under_its_name_brings_it_back(
    owner: User, run: Run, launch: Callable[..., Run]
) -> None:
    services.stop(run.pk, owner)
    services.archive_experiment(run.experiment_id, owner)
    assert launch().experiment_id == run.experiment_id
    assert Experiment.objects.get().archived_at is None


def test_an_empty_one_is_deleted_and_its_name_is_free_again(api: Api) -> None:
    made = api("POST", "experiments", {"name": "Why?"}).json()
    assert api("PATCH", f"experiments/{made['id']}", {"archived": True}).json()["archived_at"]
    assert api("DELETE", f"experiments/{made['id']}").status_code == 204
    assert api("POST", "experiments", {"name": "why?"}).status_code == 201


def test_the_page_tells_what_a_run_changed_and_gained_against_the_baseline(
    page: Client, launch: Callable[..., Run]
) -> None:
    base = launch()
    other = launch(seed=5, pool={"capacity": 50})
    rate = HEADLINE["success"]
    Run.objects.filter(pk=base.pk).update(headline={rate: 0.5})
    Run.objects.filter(pk=other.pk).update(headline={rate: 0.625})
    address = f"/experiments/{base.experiment_id}/"
    page.post(f"{address}edit", {"baseline": base.pk})
    found = page.get(address)
    rows = {row.run.pk: row for row in found.context["rows"]}
    assert rows[other.pk].gain == pytest.approx(0.125)
    assert [one.path for one in rows[other.pk].changes] == ["pool.capacity", "seed"]
    assert rows[base.pk].changes == []
    assert "+12.5" in found.content.decode()


def test_markdown_is_previewed_as_harmless_as_it_is_shown(page: Client) -> None:
    text = page.post("/markdown", {"notes": "**a** <script>x</script> [l](javascript:x)"})
    assert "<strong>a</strong>" in text.content.decode()
    assert "<script" not in text.content.decode() and "href" not in text.content.decode()
    assert "Nothing written" in page.post("/markdown", {"notes": ""}).content.decode()


def queries_of(page: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as found:
        assert page.get(address).status_code == 200
    return len(found)


def test_the_queries_of_both_pages_do_not_grow(
    page: Client, project: Any, driver: Driver, launch: Callable[..., Run]
) -> None:
    experiment = driver.run.experiment
    Experiment.objects.filter(pk=experiment.pk).update(baseline=driver.run)
    addresses = [f"/projects/{project.pk}/experiments/", f"/experiments/{experiment.pk}/"]
    for address in addresses:
        page.get(address)
    launch()
    few = [queries_of(page, address) for address in addresses]
    for number in range(6):
        launch(seed=number)
        services.create_experiment(project, driver.run.created_by, f"q{number}")  # type: ignore[arg-type]
    Run.objects.update(ended_at=timezone.now())
    assert [queries_of(page, address) for address in addresses] == few


def test_two_people_who_edit_one_scheme_lose_nothing(
    page: Client, second: Client, api: Api, owner: User, project: Any
) -> None:
    made = api(
        "POST", "reward-schemes", {"definition": {"name": "S", "terms": [{"kind": "exact_answer"}]}}
    ).json()
    scheme = RewardScheme.objects.get()
    address = f"/rewards/{scheme.pk}/new"
    assert 'name="based_on" value="1"' in second.get(address).content.decode()

    def given(weight: str, based_on: str) -> dict[str, str]:
        return {"use.exact_answer": "1", "weight.exact_answer": weight, "based_on": based_on}

    assert page.post(address, given("2.0", "1")).status_code == 302
    told = second.post(address, {**given("3.0", "1"), "note": "mine"})
    assert told.status_code == 409
    text = told.content.decode()
    assert f"Version 2 was saved by {owner}" in text and 'value="mine"' in text
    assert 'name="based_on" value="2"' in text and 'value="3.0"' in text
    changed = [row for row in told.context["meanwhile"] if row["before"] != row["after"]]
    assert [(row["before"], row["after"]) for row in changed] == [(2.0, 3.0)]
    assert second.post(address, given("3.0", "2")).status_code == 302
    assert [one.number for one in scheme.versions.order_by("number")] == [1, 2, 3]
    body = {"definition": made["definition"], "based_on": 2}
    assert api("POST", f"reward-schemes/{scheme.pk}/versions", body).status_code == 409
    body["based_on"] = 3
    assert api("POST", f"reward-schemes/{scheme.pk}/versions", body).status_code == 201


def test_the_table_of_runs_marks_the_baseline(page: Client, launch: Callable[..., Run]) -> None:
    base, _other = launch(), launch(seed=1)
    page.post(f"/experiments/{base.experiment_id}/edit", {"baseline": base.pk})
    text = page.get(f"/projects/{base.project_id}/runs/").content.decode()
    assert text.count("The pinned baseline of its experiment") == 1
