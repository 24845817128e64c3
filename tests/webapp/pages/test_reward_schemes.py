"""Reward schemes on their pages: presets, fields of terms, a curriculum, and what was wrong."""

from collections.abc import Callable
from typing import Any

from django.test import Client
from django.urls import reverse

from webapp.accounts.models import Project
from webapp.experiments import services
from webapp.experiments.models import RewardSchemeVersion, Run
from webapp.monitoring.overview import chart_data
from webapp.reviews.reading import term_weights

COMPOSITE = {
    "name": "mine",
    "use.exact_answer": "1",
    "weight.exact_answer": "0.8",
    "use.step_efficiency": "1",
    "weight.step_efficiency": "0.2",
    "budget.step_efficiency": "8",
    "process.step_efficiency": "1",
    "ramp_steps.curriculum": "12",
    "cap.curriculum": "",
}


def save(page: Client, project: Project, **changes: str) -> Any:
    data = {name: value for name, value in {**COMPOSITE, **changes}.items() if value != "-"}
    return page.post(reverse("reward_scheme_new", args=[project.pk]), data)


def test_a_scheme_keeps_the_fields_of_its_terms_and_its_curriculum(
    page: Client, project: Project
) -> None:
    assert save(page, project).status_code == 302
    definition = RewardSchemeVersion.objects.get().definition
    efficiency = {
        "kind": "step_efficiency",
        "weight": 0.2,
        "budget": 8,
        "cache": None,
        "ngram": None,
    }
    assert definition["terms"][1] == efficiency
    plan = definition["curriculum"]
    assert (plan["process"], plan["ramp_steps"], plan["cap"]) == (["step_efficiency"], 12, 0.4)
    scheme = RewardSchemeVersion.objects.get().scheme_id
    shown = page.get(reverse("reward_scheme", args=[scheme])).content.decode()
    assert "step_efficiency budget" in shown and "curriculum ramp_steps" in shown


def test_without_a_later_term_there_is_no_curriculum(page: Client, project: Project) -> None:
    assert save(page, project, **{"process.step_efficiency": "-"}).status_code == 302
    assert RewardSchemeVersion.objects.get().definition["curriculum"] is None


def test_what_is_wrong_is_said_at_its_field(page: Client, project: Project) -> None:
    for changes, said in (
        ({"budget.step_efficiency": ""}, "valid integer"),
        ({"cap.curriculum": "0.9"}, "less than 0.5"),
        ({"ramp_steps.curriculum": "soon"}, "valid integer"),
        ({"use.step_efficiency": "-"}, "step_efficiency, which is no term"),
        ({"weight.exact_answer": "much"}, "valid number"),
    ):
        answer = save(page, project, **changes)
        assert (answer.status_code, said in answer.content.decode()) == (422, True), changes
    assert not RewardSchemeVersion.objects.exists()


def test_a_new_scheme_can_start_from_a_preset(page: Client, project: Project) -> None:
    address = reverse("reward_scheme_new", args=[project.pk])
    shown = page.get(address, {"preset": "composite-curriculum"}).content.decode()
    assert 'name="weight.tool_error_count" inputmode="decimal" value="-1.5"' in shown
    assert 'name="process.tool_error_count" value="1" checked' in shown
    assert "?preset=composite" in shown
    assert page.get(address, {"preset": "unknown"}).status_code == 200


def test_a_change_of_the_curriculum_is_a_new_version_and_a_difference(
    page: Client, project: Project
) -> None:
    save(page, project)
    scheme = RewardSchemeVersion.objects.get().scheme_id
    data = {**COMPOSITE, "ramp_steps.curriculum": "50"}
    page.post(reverse("reward_scheme_new_version", args=[scheme]), data)
    address = reverse("reward_scheme", args=[scheme])
    shown = page.get(address, {"version": "2", "against": "1"}).content.decode()
    row = shown[shown.index("curriculum ramp_steps") :]
    assert row.index("12") < row.index("50") < row.index("changed")


def test_a_recipe_names_a_scheme(launch: Callable[..., Run]) -> None:
    run = launch(reward="composite")
    assert run.reward_scheme is not None
    assert run.reward_scheme.scheme.name == "composite"
    assert run.spec["reward"]["terms"][2]["weight"] == -1.5
    version = launch(reward="composite").reward_scheme
    assert version == run.reward_scheme
    assert services.check_spec({**run.spec}).reward.name == "composite"


def test_a_run_with_a_curriculum_shows_its_charts(launch: Callable[..., Run]) -> None:
    def panels(run: Run) -> set[str]:
        return {panel["id"] for panel in chart_data(run)["charts"]["panels"]}

    added = panels(launch(reward="composite-curriculum")) - panels(launch())
    assert added == {"process_weight", "outcome_process", "process_correlation"}


def test_replay_weighs_process_terms_as_they_were_graded(launch: Callable[..., Run]) -> None:
    spec = launch(reward="composite-curriculum").spec
    assert term_weights(spec, {"process_weight": 0.1}) == {
        "exact_answer": 0.8,
        "step_efficiency": 0.2 * 0.1,
        "tool_error_count": -1.5 * 0.1,
    }
    assert term_weights(launch().spec, {}) == {"exact_answer": 1.0}
