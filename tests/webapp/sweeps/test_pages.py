"""The pages of sweeps: the form says what it comes to, one sweep shows its trials and pictures."""

import re
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.webapp.support import SPEC
from tests.webapp.sweeps.playing import LR, choice, run_of, step, sweep_of, train
from webapp.accounts.models import Project, User
from webapp.experiments.recipes import recipe
from webapp.problems import RefusedError
from webapp.sweeps import form
from webapp.sweeps.figures import HEIGHT, WIDTH, pictures
from webapp.sweeps.models import Sweep
from webapp.sweeps.queries import drawn, sweep_detail


def typed(*rows: tuple[str, str, str], **fields: str) -> dict[str, Any]:
    paths, kinds, values = zip(*rows, strict=True)
    given = {"text": recipe("smoke").text, "method": "random", "trials": "5", **fields}
    return {**given, "path": list(paths), "kind": list(kinds), "values": list(values)}


@pytest.mark.parametrize(
    ("kind", "values", "read"),
    [
        ("choice", "1e-4, 3e-4", {"values": [1e-4, 3e-4]}),
        ("choice", "grpo, cispo", {"values": ["grpo", "cispo"]}),
        ("choice", "[1, 2], [3]", {"values": [[1, 2], [3]]}),
        ("choice", "true, null", {"values": [True, None]}),
        ("loguniform", "1e-5 .. 1e-2", {"low": 1e-5, "high": 1e-2}),
        ("uniform", "-0.5 to 2", {"low": -0.5, "high": 2}),
        ("int", "8 .. 64 .. 8", {"low": 8, "high": 64, "step": 8}),
    ],
)
def test_it_reads_values_as_people_write_them(kind: str, values: str, read: Any) -> None:
    fields = (form.Field("seed", kind, values),)
    plan = form.plan_of(form.Typed(text="", fields=fields))
    assert plan["space"] == [{"kind": kind, "path": "seed", **read}]


def test_it_names_the_row_that_cannot_be_read() -> None:
    fields = (form.Field(), form.Field("seed", "uniform", "from low to high"))
    with pytest.raises(RefusedError) as refused:
        form.plan_of(form.Typed(text="", fields=fields))
    assert form.placed(form.Typed(text="", fields=fields), refused.value.errors) == [
        ("seed", "Write where it begins and ends, such as 1 .. 10.")
    ]


def test_a_form_comes_back_as_it_was_typed() -> None:
    given = QueryDict(mutable=True)
    given.setlist("path", ["a", "b"])
    given.setlist("kind", ["choice", "int"])
    given.setlist("values", ["1", "2 .. 3"])
    given["metric"] = "train/loss"
    found = form.typed(given)
    assert found.fields == (form.Field("a", "choice", "1"), form.Field("b", "int", "2 .. 3"))
    assert found.metric == "train/loss"


def test_the_form_says_what_it_comes_to(page: Client, project: Project) -> None:
    address = reverse("sweep_check", args=[project.pk])
    good = page.post(address, typed(("stages.1.steps", "choice", "100, 200")))
    assert "combinations were tried against the spec: all are valid" in good.content.decode()
    bad = page.post(address, typed(("stages.1.stepz", "choice", "1"))).content.decode()
    assert "This field does not exist" in bad and "stages.1.stepz" in bad
    broken = page.post(address, typed(("seed", "choice", "1"), text="a: [")).content.decode()
    assert "not valid YAML" in broken


def test_a_spec_from_the_launch_page_becomes_a_sweep(page: Client, project: Project) -> None:
    address = reverse("sweep_new", args=[project.pk])
    launch = page.get(reverse("launch", args=[project.pk])).content.decode()
    assert f'formaction="{address}"' in launch
    shown = page.post(address, {"text": recipe("smoke").text, "name": "mine"})
    assert shown.status_code == 200 and "stages.2.prompts_per_step" in shown.content.decode()
    refused = page.post(address, {**typed(("seed", "choice", "-1")), "create": "1"})
    assert refused.status_code == 422 and 'value="-1"' in refused.content.decode()
    made = page.post(address, {**typed(("seed", "choice", "1, 2"), name="mine"), "create": "1"})
    assert made.status_code == 302
    assert Sweep.objects.get().name == "mine"


def test_a_sweep_shows_its_trials_and_how_to_compare_them(
    page: Client, project: Project, owner: User
) -> None:
    sweep = sweep_of(project, owner, choice(LR, 0.001, 0.002, 0.003), at_once=3)
    first, second, _ = step(sweep)
    train(first, 0.25)
    train(second, 0.75)
    step(sweep)
    text = page.get(reverse("sweep", args=[sweep.pk])).content.decode()
    assert f"?runs={run_of(second).pk},{run_of(first).pk}," in text
    assert text.count("<circle") == 4
    of_trial = page.get(reverse("run", args=[run_of(second).pk])).content.decode()
    assert "trial 2 of" in of_trial and reverse("sweep", args=[sweep.pk]) in of_trial
    by_value = page.get(reverse("sweep", args=[sweep.pk]) + "?sort=value").content.decode()
    rows = re.findall(r"<tr data-row><td class=\"num\">(\d)", by_value)
    assert rows == ["2", "1", "3"]
    stopped = page.post(reverse("sweep_control", args=[sweep.pk]), {"action": "stop"})
    assert stopped.status_code == 302
    sweep.refresh_from_db()
    assert sweep.state == "stopped"


def test_pictures_place_values_where_they_belong(project: Project, owner: User) -> None:
    space = {"kind": "loguniform", "path": LR, "low": 1e-4, "high": 1e-2}
    sweep = sweep_of(project, owner, space, method="random", budget={"trials": 3}, at_once=3)
    trials = step(sweep)
    for trial, (rate, value) in zip(trials, ((1e-3, 0.2), (1e-4, 0.6), (1e-2, 0.4)), strict=True):
        trial.params = {LR: rate}
        trial.save()
        train(trial, value)
    step(sweep)
    over_trials, over_rate = pictures(sweep_detail(sweep), drawn(sweep))
    by_label = {dot.label: dot for dot in over_rate.dots}
    assert [float(by_label[label].x) for label in ("1: 0.2000", "2: 0.6000", "3: 0.4000")] == [
        WIDTH / 2, 0, WIDTH,
    ]  # fmt: skip
    assert [float(by_label[label].y) for label in ("1: 0.2000", "2: 0.6000")] == [HEIGHT, 0]
    assert by_label["2: 0.6000"].look == "best"
    assert over_trials.best == f"M0.0 {HEIGHT:.1f}H0.0H160.0V0.0H320.0"


def test_pages_ask_the_same_number_of_questions_for_more_rows(
    page: Client, project: Project, owner: User
) -> None:
    def asked(address: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert page.get(address).status_code == 200
        return len(queries)

    sweep = sweep_of(project, owner, choice("seed", *range(40)), at_once=3)
    for trial in step(sweep):
        train(trial, 0.5)
    step(sweep)
    listing, one = reverse("sweeps", args=[project.pk]), reverse("sweep", args=[sweep.pk])
    asked(listing)
    few = asked(listing), asked(one)
    for _ in range(4):
        sweep_of(project, owner, choice("seed", 1))
    sweep.plan = {**sweep.plan, "at_once": 30}
    sweep.save()
    assert len(step(sweep)) == 33
    assert (asked(listing), asked(one)) == few


def test_nothing_yet_says_what_to_do(page: Client, project: Project) -> None:
    assert "No sweeps yet" in page.get(reverse("sweeps", args=[project.pk])).content.decode()


def test_names_are_text(page: Client, project: Project, owner: User) -> None:
    sweep = sweep_of(project, owner, choice("name", "<b>x</b>", "🚀 ‮abc"))
    sweep.name = "<script>alert(1)</script>"
    sweep.save()
    step(sweep)
    for address in (reverse("sweep", args=[sweep.pk]), reverse("sweeps", args=[project.pk])):
        text = page.get(address).content.decode()
        assert "<script>alert" not in text and "<b>x" not in text
    assert SPEC["name"] == "try"


def test_long_values_are_cut(page: Client, project: Project, owner: User) -> None:
    sweep = sweep_of(project, owner, choice("description", *("x" * 3000 + str(n) for n in (1, 2))))
    step(sweep)
    text = page.get(reverse("sweep", args=[sweep.pk])).content.decode()
    assert "x" * 79 + "…" in text and "x" * 80 not in text
