"""Lists of experiments, datasets, reward schemes and presets: pages, names, what they cost."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.webapp.support import Api
from webapp.accounts.models import Project, User
from webapp.experiments.models import (
    Dataset,
    DatasetVersion,
    Experiment,
    Preset,
    RewardScheme,
    RewardSchemeVersion,
    Run,
)

NAMES = ["alpha", "Beta", "beta two", "gamma", "搜索 search"]
# A list's page, and its call.
LISTS = {
    "experiments": "experiments",
    "rewards": "reward-schemes",
    "datasets": "datasets",
    "presets": "presets",
}


@pytest.fixture
def material(project: Project, owner: User) -> None:
    """Five of each, the last one the newest."""
    for name in NAMES:
        Experiment.objects.create(project=project, name=name, created_by=owner)
        dataset = Dataset.objects.create(project=project, name=name, kind="pairs")
        fields = {"number": 1, "rows": 3, "size": 9, "blob": "0" * 64}
        DatasetVersion.objects.create(dataset=dataset, **fields)
        scheme = RewardScheme.objects.create(project=project, name=name)
        RewardSchemeVersion.objects.create(scheme=scheme, number=1, definition={}, digest=name)
        Preset.objects.create(project=project, name=name, text="name: x\n", updated_by=owner)


def pages(api: Api, path: str, **query: Any) -> list[list[str]]:
    """Names by page, two on each."""
    found, cursor = [], ""
    while True:
        given = "&".join(f"{key}={value}" for key, value in query.items())
        page = api("GET", f"{path}?limit=2&cursor={cursor}&{given}").json()
        found.append([row["name"] for row in page["items"]])
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@pytest.mark.usefixtures("material")
@pytest.mark.parametrize("path", ["datasets", "reward-schemes"])
def test_material_is_paged_by_name_whatever_its_case(api: Api, path: str) -> None:
    assert pages(api, path) == [["alpha", "Beta"], ["beta two", "gamma"], ["搜索 search"]]


@pytest.mark.usefixtures("material")
@pytest.mark.parametrize("path", ["experiments", "presets"])
def test_what_people_work_on_is_paged_with_the_newest_first(api: Api, path: str) -> None:
    assert sum(pages(api, path), []) == NAMES[::-1]


@pytest.mark.usefixtures("material")
@pytest.mark.parametrize("path", LISTS.values())
def test_a_part_of_the_name_narrows_a_call(api: Api, path: str) -> None:
    assert {name for page in pages(api, path, q="BETA") for name in page} == {"Beta", "beta two"}
    assert pages(api, path, q="索") == [["搜索 search"]]
    assert pages(api, path, q="%25") == [[]]
    assert api("GET", f"{path}?cursor=made-up").status_code == 400


@pytest.mark.usefixtures("material")
def test_an_experiment_comes_first_by_its_newest_run(api: Api, run: Run) -> None:
    assert pages(api, "experiments")[0][0] == run.experiment.name
    Run.objects.update(created_at=timezone.now() - timedelta(days=1))
    assert sum(pages(api, "experiments"), [])[-1] == run.experiment.name
    row = api("GET", f"experiments?q={run.experiment.name}").json()["items"][0]
    assert (row["run_count"], row["active_count"]) == (1, 1)


@pytest.mark.usefixtures("material")
def test_rows_say_what_the_page_shows(api: Api, run: Run) -> None:
    dataset = api("GET", "datasets?q=gamma&kind=pairs").json()["items"][0]
    assert (dataset["version_count"], dataset["newest_rows"]) == (1, 3)
    assert api("GET", "datasets?kind=tasks").json()["items"] == []
    assert len(api("GET", "datasets?kind=tasks,pairs").json()["items"]) == 5
    assert run.reward_scheme is not None
    scheme = api("GET", f"reward-schemes?q={run.reward_scheme.scheme.name}").json()["items"][0]
    assert (scheme["version_count"], scheme["run_count"]) == (1, 1)
    preset = api("GET", "presets?q=gamma").json()["items"][0]
    assert "text" not in preset
    assert api("GET", f"presets/{preset['id']}").json()["text"] == "name: x\n"


@pytest.mark.usefixtures("material")
def test_versions_are_found_by_words_and_numbers(api: Api) -> None:
    dataset = Dataset.objects.get(name="beta two")
    fields = {"rows": 3, "size": 9, "blob": "0" * 64}
    newest = DatasetVersion.objects.create(dataset=dataset, number=12, **fields)
    items = api("GET", "dataset-versions?kind=pairs&limit=2").json()["items"]
    assert items[0]["id"] == newest.pk
    for q in ("12", "12 two", "beta 12"):
        (only,) = api("GET", f"dataset-versions?q={q}").json()["items"]
        assert (only["dataset"]["name"], only["number"]) == ("beta two", 12)
    assert api("GET", f"dataset-versions?q={'9' * 5000}").json()["items"] == []
    assert len(api("GET", "dataset-versions?q=beta").json()["items"]) == 3
    assert api("GET", "dataset-versions?kind=tasks").json()["items"] == []
    (scheme,) = api("GET", "reward-scheme-versions?q=gamma").json()["items"]
    assert scheme["scheme"]["name"] == "gamma" and "definition" not in scheme


@pytest.mark.usefixtures("material")
@pytest.mark.parametrize("place", LISTS)
def test_a_page_is_narrowed_and_goes_on(page: Client, project: Project, place: str) -> None:
    address = f"/projects/{project.pk}/{place}/"
    whole = page.get(address).content.decode()
    assert all(name in whole for name in NAMES) and "data-search" in whole
    assert "Next page" not in whole
    part = page.get(f"{address}?q=two", headers={"HX-Request": "true"}).content.decode()
    assert "beta two" in part and "gamma" not in part and "<html" not in part
    none = page.get(f"{address}?q=nothing+of+that").content.decode()
    assert "matches" in none and "data-search" in none


@pytest.mark.parametrize("place", LISTS)
def test_a_page_with_more_rows_leads_to_the_next_and_back(
    page: Client, project: Project, place: str
) -> None:
    for n in range(51):
        name = f"number {n:03}"
        Experiment.objects.create(project=project, name=name)
        Dataset.objects.create(project=project, name=name, kind="tasks")
        RewardScheme.objects.create(project=project, name=name)
        Preset.objects.create(project=project, name=name, text="")
    address = f"/projects/{project.pk}/{place}/"
    first = page.get(f"{address}?q=number")
    cursor = first.context["page"].next_cursor
    assert len(first.context["page"].items) == 50 and cursor
    assert f"?q=number&amp;cursor={cursor}" in first.content.decode()
    second = page.get(f"{address}?q=number&cursor={cursor}")
    assert len(second.context["page"].items) == 1
    assert "First page" in second.content.decode()
    assert "Next page" not in second.content.decode()


@pytest.mark.parametrize("place", LISTS)
def test_an_empty_list_says_what_to_do_and_has_no_filter(
    page: Client, project: Project, place: str
) -> None:
    text = page.get(f"/projects/{project.pk}/{place}/").content.decode()
    assert 'class="empty"' in text and "data-search" not in text
    assert page.get(f"/projects/{project.pk}/{place}/?cursor=made-up").status_code == 400


def test_launch_shows_the_presets_that_were_saved_last_and_finds_others(
    page: Client, project: Project
) -> None:
    for n in range(10):
        Preset.objects.create(project=project, name=f"preset {n}", text="name: x\n")
    oldest = Preset.objects.get(name="preset 0")
    address = f"/projects/{project.pk}/launch/"
    text = page.get(address).content.decode()
    assert "preset 9" in text and "preset 0" not in text
    assert 'aria-label="Find a preset"' in text
    chosen = page.get(f"{address}?preset={oldest.pk}").content.decode()
    assert "preset 0" in chosen
    headers = {"HX-Request": "true"}
    search = f"/projects/{project.pk}/presets/?cards=1&q=preset+0"
    found = page.get(search, headers=headers).content.decode()
    assert f"?preset={oldest.pk}" in found and "preset 9" not in found
    assert "<h1>Presets" in page.get(search).content.decode()  # without htmx


def test_launch_offers_the_newest_versions_and_those_that_the_spec_names(
    page: Client, project: Project
) -> None:
    dataset = Dataset.objects.create(project=project, name="rows", kind="pairs")
    fields = {"rows": 3, "size": 9, "blob": "0" * 64}
    made = [
        DatasetVersion.objects.create(dataset=dataset, number=n, **fields) for n in range(1, 53)
    ]
    address = f"/projects/{project.pk}/launch/?recipe=repair"
    newest = page.get(address).context["stored"]["datasets"]
    assert newest["more"] and made[0].pk not in {row["id"] for row in newest["items"]}
    named = page.get(f"{address}&dataset={made[0].pk}&as=dpo").context["stored"]["datasets"]
    assert named["items"][-1]["id"] == made[0].pk
