"""What people come for: launch, find, compare, describe, upload. In a real browser."""

import json
import re

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from webapp.experiments.models import Dataset, Experiment, RewardSchemeVersion, Run

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'


def editor(page: Page):
    return page.get_by_label("Spec as YAML")


def verdict(page: Page):
    return page.locator("#verdict")


def test_a_recipe_is_edited_both_ways_and_launched(visit, project, owner) -> None:
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=smoke")
    expect(verdict(page)).to_have_text("can be launched")

    # The form writes into the text, comments stay.
    page.locator("details[data-path=pool] > summary").click()
    page.get_by_label("max staleness").fill("2")
    page.get_by_label("max staleness").press("Enter")
    expect(editor(page)).to_have_value(re.compile(r"pool:\n  capacity: 32\n  max_staleness: 2\n"))
    assert "# Everything once" in editor(page).input_value()

    # The text writes into the form; what is wrong is named at both.
    text = editor(page).input_value().replace("capacity: 32", "capacity: 4")
    editor(page).fill(text)
    expect(verdict(page)).to_have_text("2 problems")
    expect(page.get_by_label("capacity")).to_have_attribute("aria-invalid", "true")
    problem = page.locator("#problems .problem", has_text="pool.capacity")
    expect(problem).to_contain_text("it would never be filled")
    line = text.split("\n").index("  capacity: 4") + 1
    expect(problem).to_contain_text(f"line {line}")
    expect(page.locator("#gutter .marked").last).to_have_text(str(line))
    expect(page.get_by_role("button", name="Launch")).to_be_disabled()
    page.get_by_label("capacity").fill("48")
    page.get_by_label("capacity").press("Tab")
    expect(verdict(page)).to_have_text("can be launched")

    page.get_by_label("Experiment").fill("Does it start?")
    page.get_by_label("What do you want to find out?").fill(f"**Bold** {HOSTILE}")
    page.get_by_role("button", name="Launch").click()
    expect(page).to_have_url(re.compile(r"/runs/run_\w+/"))
    expect(page.locator(".run-notes strong")).to_have_text("Bold")
    expect(page.locator(".run-notes")).to_contain_text("<script>")
    assert page.evaluate("window.pwned") is None
    run = Run.objects.get()
    assert run.spec["pool"] == {**run.spec["pool"], "capacity": 48, "max_staleness": 2}
    assert run.experiment.name == "Does it start?"


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("name: a\nstages: []\n", "stages", "at least 1 item"),
        ("name: a\nstagez: []\n", "stagez", "does not exist"),
        ("name: [\n", "", "not valid YAML"),
        ("- 1\n", "", "mapping of fields"),
        ("name: 5\nstages: [{kind: synthesise}]\n", "name", "valid string"),
    ],
)
def test_a_bad_spec_is_named_and_not_launched(visit, project, owner, text, path, message) -> None:
    page = visit(owner, reverse("launch", args=[project.pk]))
    editor(page).fill(text)
    expect(page.locator("#problems .problem", has_text=message).first).to_contain_text(path)
    expect(page.get_by_role("button", name="Launch")).to_be_disabled()
    assert not Run.objects.exists()


def test_a_stage_is_added_and_removed_in_the_form(visit, project, owner) -> None:
    page = visit(owner, reverse("launch", args=[project.pk]) + "?recipe=smoke")
    page.locator("details[data-path=stages] > summary").click()
    page.get_by_role("button", name="Add sft").click()
    expect(page.locator("details[data-path='stages.3']")).to_be_visible()
    expect(verdict(page)).to_have_text("can be launched")
    page.locator("details[data-path='stages.3'] > summary").click()
    added = page.locator("details[data-path='stages.3']")
    added.get_by_role("button", name="Remove").last.click()
    expect(page.locator("details[data-path='stages.3']")).to_have_count(0)


def test_a_clone_shows_what_differs(visit, project, owner, played) -> None:
    parent = played(steps=2).run
    page = visit(owner, reverse("run", args=[parent.pk]))
    page.get_by_role("link", name="Clone").click()
    expect(page.locator("#differences")).to_contain_text("Nothing yet")
    editor(page).fill(editor(page).input_value().replace("seed: 0", "seed: 7"))
    expect(page.locator("#differences")).to_contain_text("seed")
    expect(page.locator("#differences .added")).to_have_text("7")
    page.get_by_role("button", name="Launch").click()
    expect(page).to_have_url(re.compile(r"/runs/run_\w+/"))
    clone = Run.objects.exclude(pk=parent.pk).get()
    assert (clone.parent_id, clone.spec["seed"]) == (parent.pk, 7)


def test_runs_are_found_sorted_tagged_and_compared(visit, project, owner, played) -> None:
    names = ["alpha", "beta", "gamma"]
    runs = {name: played(steps=3, number=i, name=name).run for i, name in enumerate(names)}
    page = visit(owner, reverse("runs", args=[project.pk]))
    rows = page.locator("#runs-table tr[data-row]")
    expect(rows).to_have_count(3)

    page.get_by_label("Filter").fill("beta")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("q=beta"))
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_label("Filter").fill("success>2")
    expect(page.locator("#runs-table")).to_contain_text("No run matches")
    page.get_by_label("Filter").fill("nonsense:1")
    expect(page.get_by_role("alert")).to_contain_text("There is no filter 'nonsense'")
    page.get_by_label("Filter").fill("")
    expect(rows).to_have_count(3)

    page.get_by_role("link", name="Run", exact=True).click()
    expect(rows.first).to_contain_text("alpha")
    page.get_by_label("Select alpha").check()
    page.get_by_label("Select gamma").check()
    page.get_by_label("Tag", exact=True).fill("good")
    page.get_by_role("button", name="Add tag").click()
    expect(page.locator(".tag", has_text="good")).to_have_count(2)
    assert "good" in Run.objects.get(pk=runs["gamma"].pk).tags

    page.get_by_label("Select alpha").check()
    page.get_by_label("Select beta").check()
    page.locator("[data-compare]").click()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    page.get_by_role("heading", name="Config").scroll_into_view_if_needed()  # parts load in view
    expect(page.locator("main")).to_contain_text("The same spec")
    page.get_by_role("heading", name="Curves").scroll_into_view_if_needed()
    page.wait_for_selector(".panel .js-plotly-plot")
    expect(page.locator(".panel").first.locator(".readout")).to_have_count(2)


def test_columns_are_picked_and_kept_in_the_address(visit, project, owner, played) -> None:
    played(steps=3)
    page = visit(owner, reverse("runs", args=[project.pk]))
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("Loss").check()
    expect(page.get_by_role("columnheader", name="Loss")).to_be_visible()
    expect(page).to_have_url(re.compile("columns="))


def test_charts_are_searched_smoothed_and_moved_to_another_axis(visit, owner, played) -> None:
    run = played(steps=30).run
    page = visit(owner, reverse("run_charts", args=[run.pk]))
    page.get_by_label("Search metrics").fill("entropy")
    expect(page.locator(".panel")).to_have_count(1)
    page.wait_for_selector(".panel .js-plotly-plot")
    page.get_by_label("Smoothing").select_option("0.85")
    expect(page.locator("[data-panel-note]")).to_contain_text("smoothed, EMA 0.85")
    page.get_by_label("Axis").select_option("wall")
    title = page.locator(".panel .xtitle")
    expect(title).to_have_text("minutes since the run's first value")
    expect(page).to_have_url(re.compile("x=wall"))
    page.reload()
    expect(title).to_have_text("minutes since the run's first value")
    page.get_by_label("Axis").select_option("tokens")
    expect(title).to_have_text("tokens trained on")
    last = page.evaluate("document.querySelector('.panel .chart').data.at(-1).x.at(-1)")
    assert last > 300_000  # 30 steps of about 14,000 tokens


def test_panels_are_drawn_when_they_are_scrolled_to(visit, owner, played) -> None:
    run = played(steps=3).run
    page = visit(owner, reverse("run_charts", args=[run.pk]))
    page.wait_for_selector(".panel .js-plotly-plot")
    page.wait_for_load_state("networkidle")
    drawn, made = page.locator(".panel .js-plotly-plot"), page.locator(".panel")
    assert drawn.count() < made.count()
    made.last.scroll_into_view_if_needed()
    expect(made.last.locator(".js-plotly-plot")).to_be_visible()


def test_hovering_one_chart_shows_the_moment_in_all(visit, owner, played) -> None:
    run = played(steps=30).run
    page = visit(owner, reverse("run", args=[run.pk]))
    page.wait_for_selector(".panel .js-plotly-plot")
    page.locator("[data-panel=reward] .chart").hover(position={"x": 150, "y": 80})
    expect(page.locator("[data-panel=reward] [data-panel-note]")).to_contain_text("@")
    expect(page.locator("[data-panel=completion] [data-panel-note]")).to_contain_text("@")
    expect(page.locator(".chart-cursor:visible").nth(3)).to_be_visible()


def test_an_experiment_has_notes_and_a_baseline(visit, project, owner, played) -> None:
    run = played(steps=2, name="first").run
    experiment = Experiment.objects.get()
    page = visit(owner, reverse("experiment", args=[experiment.pk]))
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Notes, in Markdown").fill(f"- one\n- two\n\n{HOSTILE}")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".prose li")).to_have_count(2)
    expect(page.locator(".prose")).to_contain_text("<script>")
    assert page.evaluate("window.pwned") is None
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.locator("main")).to_contain_text("baseline")
    experiment.refresh_from_db()
    assert experiment.baseline_id == run.pk


def test_an_upload_names_every_wrong_row(visit, project, owner) -> None:
    page = visit(owner, reverse("datasets", args=[project.pk]))
    page.get_by_role("button", name="New dataset").click()
    page.get_by_label("Name").fill("questions")
    page.get_by_role("button", name="Create").click()
    rows = [{"prompt": "Where?", "answer": "There.", "category": "1 hop"}] * 3
    lines = [json.dumps(row) for row in rows]
    bad = [lines[0], '{"prompt": "no answer"}', "not json"]
    page.get_by_label("JSON lines").set_input_files(
        {"name": "a.jsonl", "mimeType": "text/plain", "buffer": "\n".join(bad).encode()}
    )
    page.get_by_role("button", name="Upload").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("rows.2.answer")
    expect(alert).to_contain_text("rows.3")
    visit.wrong[:] = [text for text in visit.wrong if not text.startswith("422")]
    assert not Dataset.objects.get().versions.exists()

    page.get_by_label("JSON lines").set_input_files(
        {"name": "a.jsonl", "mimeType": "text/plain", "buffer": "\n".join(lines).encode()}
    )
    page.get_by_role("button", name="Upload").click()
    expect(page.locator(".samples li")).to_have_count(3)
    expect(page.locator("main")).to_contain_text("1 hop")


def test_a_reward_scheme_gets_a_version_and_a_difference(visit, project, owner) -> None:
    page = visit(owner, reverse("reward_scheme_new", args=[project.pk]))
    page.get_by_label("Name").fill("strict")
    page.locator("[name='weight.exact_answer']").fill("much")
    page.get_by_role("button", name="Save the version").click()
    expect(page.locator("[name='weight.exact_answer']")).to_have_attribute("aria-invalid", "true")
    visit.wrong[:] = [text for text in visit.wrong if not text.startswith("422")]
    page.locator("[name='weight.exact_answer']").fill("1")
    page.get_by_role("button", name="Save the version").click()
    page.get_by_role("link", name="New version").click()
    page.locator("[name='use.length']").check()
    page.locator("[name='weight.length']").fill("-0.1")
    page.get_by_label("What changed, and why").fill("Short is better")
    page.get_by_role("button", name="Save the version").click()
    expect(page.get_by_role("heading", name="Version 2")).to_be_visible()
    page.get_by_role("link", name="compare", exact=True).click()
    expect(page.locator("tr", has_text="length")).to_contain_text("added")
    assert [v.number for v in RewardSchemeVersion.objects.order_by("number")] == [1, 2]
