"""Launching from stored things, trying a checkpoint, and two people's notes, in a browser."""

import json
import re

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Locator, expect

from tests.browser.conftest import aside
from tests.webapp.experiments.test_dataset_pages import PAIR, add
from tests.webapp.experiments.test_tries import TASKS, keep_tasks, play
from tests.webapp.pages.test_launch_start import BROKEN
from tests.webapp.support import SPEC, person, start
from webapp.accounts.models import Role
from webapp.experiments import services
from webapp.experiments.models import (
    Checkpoint,
    Dataset,
    DatasetVersion,
    Experiment,
    Preset,
    RewardScheme,
    RewardSchemeVersion,
    Run,
)
from webapp.experiments.services.schemes import check_definition

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def launched(project, owner, **launch) -> Run:
    spec = services.check_spec(SPEC)
    return aside(services.launch_run, project, owner, spec, services.Launch(**launch))


def expected(visit, status: str) -> None:
    """Exactly one answer was this refusal."""
    found = [one for one in visit.wrong if one.startswith(f"{status} ")]
    assert len(found) == 1
    visit.wrong.remove(found[0])


def test_a_preset_is_saved_replaced_only_when_asked_and_launched(visit, project, owner) -> None:
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=smoke")
    expect(page.locator("#verdict")).to_have_text("can be launched")
    for name in ("Ours 🐫", "ours 🐫"):
        page.get_by_role("button", name="Save as preset").click()
        page.locator("#preset-name").fill(name)
        page.locator("#preset-save").click()
        if name == "Ours 🐫":
            expect(page.locator(".recipes")).to_contain_text("Ours 🐫")
    expect(page.locator("#preset-problem")).to_contain_text("There is a preset 'Ours 🐫'")
    page.locator("#preset-replace").click()
    expect(page.locator("#save-preset")).to_be_hidden()
    assert Preset.objects.count() == 1
    page.locator(".recipes").get_by_text("Ours 🐫").click()
    expect(page.locator("#verdict")).to_have_text("can be launched")
    page.locator("#launch-button").click()
    page.wait_for_url("**/runs/**")
    assert Run.objects.get().spec["name"] == "smoke"
    expected(visit, "409")


def test_a_text_that_was_not_launched_is_back_after_a_reload(visit, project, owner) -> None:
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=smoke")
    editor = page.get_by_label("Spec as YAML")
    given = editor.input_value()
    editor.fill(given.replace("seed: 0", "seed: 77"))
    expect(page.locator("#verdict")).to_have_text("can be launched")
    page.reload()
    expect(page.locator("#draft")).to_contain_text("is back")
    assert "seed: 77" in editor.input_value()
    page.get_by_role("button", name="Begin anew").click()
    expect(editor).to_have_value(given)
    editor.fill(given.replace("seed: 0", "seed: 78"))
    expect(page.locator("#verdict")).to_have_text("can be launched")
    page.locator("#launch-button").click()
    page.wait_for_url("**/runs/**")
    page.goto(reverse("launch", args=[project.pk]) + "?recipe=smoke")
    assert editor.input_value() == given


def test_a_text_that_was_only_tried_or_was_refused_is_back(visit, project, owner) -> None:
    start = reverse("launch", args=[project.pk]) + "?recipe=smoke"
    page = visit(owner, start)
    editor = page.get_by_label("Spec as YAML")
    editor.fill(editor.input_value().replace("seed: 0", "seed: 77"))
    expect(page.locator("#verdict")).to_have_text("can be launched")
    page.get_by_role("button", name="Dry run").click()
    page.wait_for_url("**/runs/**")
    page.goto(start)
    expect(page.locator("#draft")).to_contain_text("is back")
    assert "seed: 77" in editor.input_value()
    page.locator("#priority").evaluate("(field) => field.removeAttribute('max')")
    page.locator("#priority").fill("9999")
    page.locator("#launch-button").click()
    expect(page.locator(".problem-list")).to_contain_text("priority")
    page.goto(start)
    expect(page.locator("#draft")).to_contain_text("is back")
    assert "seed: 77" in editor.input_value()
    expected(visit, "422")


def test_stored_versions_are_chosen_in_the_form(visit, project, owner) -> None:
    terms = [{"kind": "exact_answer", "weight": 2.0}]
    definition = check_definition({"name": "twice", "terms": terms})
    scheme = aside(services.create_scheme, project, owner, definition)
    dataset = aside(services.create_dataset, project, owner, "preferences", "pairs")
    version = aside(add, dataset, owner, PAIR)
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=smoke")
    page.locator("summary", has_text="reward").first.click()
    page.locator("#stored-reward").select_option(scheme.pk)
    expect(page.locator("#stored-reward-hint")).to_have_text("This is version 1 as it is stored.")
    assert "weight: 2.0" in page.locator("#spec").input_value()
    page.locator("summary", has_text="stages").first.click()
    page.get_by_role("button", name="Add dpo").click()
    field = page.locator("#field-stages-3-dataset")
    expect(field).to_contain_text("preferences version 1, 1 rows")
    field.evaluate("(select) => select.closest('details').open = true")
    field.select_option(version.pk)
    expect(page.locator("#spec")).to_have_value(re.compile(version.pk))
    expect(page.locator("#verdict")).to_have_text("can be launched")


def test_tasks_are_chosen_for_practice_and_for_a_student(visit, project, owner) -> None:
    dataset = aside(services.create_dataset, project, owner, "questions", "tasks")
    version = aside(add, dataset, owner, {"prompt": "a", "answer": "b"})
    aside(services.create_dataset, project, owner, "preferences", "pairs")
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=smoke")
    page.locator("summary", has_text="stages").first.click()

    def open_field(name: str) -> Locator:
        field = page.locator(f"#field-stages-{name}")
        field.evaluate(
            "(at) => { while ((at = at.parentElement.closest('details'))) at.open = true; }"
        )
        return field

    page.get_by_role("button", name="Add dpo").click()
    open_field("3-practice-hops").fill("2")
    page.keyboard.press("Enter")
    expect(page.locator("#spec")).to_have_value(re.compile(r"hops: \[2\]|hops:\s+- 2"))
    practice = open_field("3-practice-dataset")
    expect(practice).to_contain_text("questions version 1, 1 rows")
    expect(open_field("3-dataset")).not_to_contain_text("questions")
    practice.select_option(version.pk)
    expect(page.locator("#spec")).to_have_value(re.compile(version.pk))
    expect(page.locator("#verdict")).to_have_text("can be launched")
    expect(open_field("3-practice-hops")).to_have_value("")
    page.get_by_role("button", name="Add opd").click()
    open_field("4-dataset").select_option(version.pk)
    expect(page.locator("#spec")).to_have_value(
        re.compile(f"{version.pk}.*{version.pk}", re.DOTALL)
    )


@pytest.mark.parametrize("name", BROKEN)
def test_fields_that_disagree_are_both_marked_in_the_form(visit, project, owner, name) -> None:
    stage, paths = BROKEN[name]
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=smoke")
    expect(page.locator("#verdict")).to_have_text("can be launched")
    stages = [*SPEC["stages"], stage]
    page.locator("#spec").fill(json.dumps({**SPEC, "stages": stages}, indent=1))
    expect(page.locator("#verdict")).to_have_text(f"{len(paths)} problems")
    marked = page.locator('#spec-form [aria-invalid="true"]')
    expect(marked).to_have_count(len(paths))
    found = marked.evaluate_all("fields => fields.map((field) => field.dataset.path)")
    assert set(found) == paths
    expect(page.locator("#problems .problem")).to_have_count(len(paths))


def test_a_clone_shows_what_is_different_as_it_is_written(visit, project, owner) -> None:
    run = launched(project, owner, name="first")
    page = visit(owner, reverse("launch", args=[project.pk]) + f"?clone={run.pk}")
    expect(page.locator("#differences")).to_contain_text("Nothing yet")
    text = page.locator("#spec").input_value()
    page.locator("#spec").fill(text.replace("seed: 0", "seed: 7"))
    expect(page.locator("#differences tbody tr")).to_have_count(1)
    expect(page.locator("#differences")).to_contain_text("seed")
    page.locator("#spec").fill(text.replace("seed: 0", "seed: seven"))
    expect(page.locator("#verdict")).to_have_text("1 problem")
    expect(page.locator("#differences")).to_contain_text('"seven"')
    page.locator("#spec").fill(text + "# " + "x" * 200_000)
    expect(page.locator("#verdict")).to_contain_text("at most 200000 fit")
    expect(page.locator("#launch-button")).to_be_disabled()


def test_a_checkpoint_is_tried_and_its_replay_opens(visit, project, owner) -> None:
    type(project).objects.update(max_running=2)
    run = launched(project, owner)
    driver = aside(start, run)
    keep_tasks(run, TASKS)
    run.checkpoints.create(
        attempt=driver.attempt, stage=2, step=20, policy_version=9, path="checkpoints/1",
        files={"model.safetensors": {"size": 1}}, created_at=timezone.now(),
    )  # fmt: skip
    page = visit(owner, reverse("run", args=[run.pk]))
    page.get_by_role("link", name="Try it").click()
    page.get_by_role("searchbox", name="Find a task").fill("北京")
    expect(page.locator("#try-tasks tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Try task 2").click()
    expect(page.locator("#played")).to_contain_text("waits for a free place")
    tried = Run.objects.order_by("-number")[0]
    assert tried.spec["stages"][1]["position"] == 2
    trajectory = aside(play, aside(start, tried))
    page.wait_for_url(f"**/trajectories/{trajectory.pk}/")


def test_two_people_write_notes_and_neither_loses_a_word(visit, project, owner) -> None:
    run = launched(project, owner)
    second = person("second", project, Role.EDITOR)
    address = reverse("experiment", args=[run.experiment_id])
    pages = [visit(owner, address), visit(second, address)]
    for page, text in zip(pages, ("**mine** first", "mine second"), strict=True):
        page.get_by_role("button", name="Edit").click()
        page.locator("#notes").fill(text)
    pages[0].get_by_role("button", name="Preview").click()
    expect(pages[0].locator("#notes-preview strong")).to_have_text("mine")
    pages[0].get_by_role("button", name="Save").click()
    expect(pages[0].locator(".notes-card")).to_contain_text("mine first")
    pages[1].get_by_role("button", name="Save").click()
    expect(pages[1].get_by_role("alert")).to_contain_text("Owner saved a change")
    mine = pages[1].locator("#mine-notes")
    assert mine.input_value() == "mine second"
    expect(pages[1].locator("textarea[readonly]")).to_have_value("**mine** first")
    mine.fill("**mine** first\nmine second")
    pages[1].get_by_role("button", name="Save mine").click()
    expect(pages[1].locator(".notes-card")).to_contain_text("mine second")
    expected(visit, "409")
    assert Experiment.objects.get().notes == "**mine** first\nmine second"


def test_a_large_config_opens_where_one_looks(visit, project, owner) -> None:
    config = {f"group_{i}": {f"key_{j}": "v" * 20 for j in range(30)} for i in range(950)}
    config["group_7"]["key_3"] = "the needle"
    launch = services.Launch(experiment="large", name="large")
    run = aside(services.begin_external, project, owner, config, launch).run
    page = visit(owner, reverse("run_config", args=[run.pk]))
    page.locator("#config-tree summary", has_text="config").click()
    expect(page.locator("#config-tree details details")).to_have_count(200)
    page.get_by_role("button", name="750 more").click()
    expect(page.locator("#config-tree details details")).to_have_count(400)
    page.locator("#config-search").fill("needle")
    expect(page.locator("#config-tree .config-leaf")).to_have_count(1)
    expect(page.locator("#config-tree")).to_contain_text("config.group_7.key_3")
    assert len(json.dumps(config)) > 900_000


def test_what_is_not_among_the_newest_is_found_as_one_types(visit, project, owner) -> None:
    terms = [{"kind": "exact_answer", "weight": 2.0}]
    oldest = aside(
        services.create_scheme, project, owner, check_definition({"name": "needle", "terms": terms})
    )
    for n in range(55):
        RewardScheme.objects.create(project=project, name=f"hay {n:02}")
        Preset.objects.create(project=project, name=f"hay {n:02}", text="name: x\n")
        scheme = RewardScheme.objects.get(name=f"hay {n:02}")
        RewardSchemeVersion.objects.create(scheme=scheme, number=1, definition={}, digest=f"{n}")
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=smoke")
    page.get_by_label("Find a preset").fill("hay 00")
    expect(page.locator("#preset-cards a")).to_have_count(1)
    page.locator("summary", has_text="reward").first.click()
    choice = page.locator("#stored-reward")
    expect(choice).not_to_contain_text("needle")
    page.get_by_label("Find a version of a reward scheme").fill("need")
    expect(page.locator("[data-found]").first).to_have_text("1 found")
    choice.select_option(oldest.pk)
    expect(page.locator("#stored-reward-hint")).to_have_text("This is version 1 as it is stored.")


def test_tasks_to_judge_by_are_found_however_old_their_version_is(visit, project, owner) -> None:
    run = launched(project, owner)
    attempt = run.attempts.get()
    Checkpoint.objects.create(
        run=run, attempt=attempt, stage=1, step=1, policy_version=1, path="checkpoints/1",
        files={}, final=True, created_at=timezone.now(),
    )  # fmt: skip
    needle = Dataset.objects.create(project=project, name="the needle", kind="tasks")
    fields = {"blob": "", "rows": 3, "size": 1}
    oldest = DatasetVersion.objects.create(dataset=needle, number=1, **fields)
    hay = Dataset.objects.create(project=project, name="hay", kind="tasks")
    for number in range(1, 52):
        DatasetVersion.objects.create(dataset=hay, number=number, **fields)
    page = visit(owner, reverse("run_checkpoints", args=[run.pk]))
    choice = page.get_by_label("Tasks", exact=True)
    expect(choice).not_to_contain_text("needle")
    page.get_by_label("Find a version of a dataset").fill("needle")
    expect(page.locator("[data-found]")).to_have_text("1 found")
    expect(choice.locator("option")).to_have_text(
        ["Held-out tasks", "Quick tasks", "the needle version 1, 3 rows"]
    )
    choice.select_option(oldest.pk)
    page.get_by_label("Find a version of a dataset").fill("nothing like it")
    expect(page.locator("[data-found]")).to_have_text("0 found")
    expect(choice).to_have_value(oldest.pk)


def test_presets_of_somebody_with_a_long_name_fit_a_phone(visit, project, owner) -> None:
    type(owner).objects.filter(pk=owner.pk).update(
        display_name="somebody.with.a.long.name@example.com"
    )
    Preset.objects.create(project=project, name="hay", text="name: x\n", updated_by=owner)
    page = visit(owner, reverse("presets", args=[project.pk]))
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.locator("#list td", has_text="long.name")).to_have_count(1)
    assert page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth") <= 0


def test_a_list_is_narrowed_by_the_keyboard_alone(visit, project, owner) -> None:
    for n in range(60):
        Dataset.objects.create(project=project, name=f"hay {n:02}", kind="tasks")
    needle = Dataset.objects.create(project=project, name="the needle", kind="pairs")
    page = visit(owner, reverse("datasets", args=[project.pk]))
    rows = page.locator("#list tr[data-row]")
    expect(rows).to_have_count(50)
    page.keyboard.press("/")
    page.keyboard.type("needle")
    expect(rows).to_have_count(1)
    assert "q=needle" in page.url
    page.reload()
    expect(rows).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/datasets/{needle.pk}/")
    page.goto(reverse("datasets", args=[project.pk]))
    page.get_by_role("link", name="Next page").click()
    expect(rows).to_have_count(11)
    page.get_by_role("link", name="First page").click()
    expect(rows).to_have_count(50)
