"""Evaluations as runs report them, read by API and page: rates, curves, comparisons."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.outcomes import Outcome
from engine.evaluation.report import report
from engine.evaluation.trials import Trials, parts, trials
from tests.engine.evaluation.samples import BROKEN, outcomes
from tests.webapp import judging
from tests.webapp.judging import items
from tests.webapp.support import Api, Driver, start
from webapp.experiments import comparing, evaluations, services
from webapp.experiments.models import Run
from webapp.monitoring.ingest import parsing, storing
from webapp.monitoring.models import RunEvent, TrialPart

Judge = Callable[..., RunEvent]


def send(driver: Driver, *items: dict[str, Any]) -> Any:
    return storing.store(driver.token, parsing.parse(json.dumps({"items": items}).encode()))


@pytest.fixture
def judge(driver: Driver) -> Judge:
    """Reports an evaluation with its trials."""

    def judge(played: list[Outcome], step: int, by: Driver = driver, **fields: Any) -> RunEvent:
        told = items(played, step, **fields)
        assert not send(by, *told).rejected
        return RunEvent.objects.get(run=by.run, kind="evaluation", seq=told[-1]["seq"])

    return judge


def test_a_runs_evaluations_are_listed_in_full(api: Api, driver: Driver, judge: Judge) -> None:
    shown = {"loss": 0.5, "token_accuracy": 0.9}
    judge([*outcomes(True, False), BROKEN], 5, demonstrations=shown)
    (found,) = api("GET", f"runs/{driver.run.pk}/evaluations").json()
    assert (found["run_id"], found["tasks"], found["step"]) == (driver.run.pk, "held_out", 5)
    assert (found["trials"], found["temperature"], found["demonstrations"]) == (1, 0.0, shown)
    assert found["report"]["completion"]["value"] == 0.5
    assert found["report"]["infra_failed"] == 1


def test_two_are_compared_on_their_common_tasks(api: Api, judge: Judge) -> None:
    first = judge(outcomes(True, False, False), 1)
    second = judge(outcomes(True, True, False), 2)
    found = api("GET", f"evaluations/compare?first={first.pk}&second={second.pk}").json()
    assert (found["tasks"], found["p"]) == (3, 1.0)
    assert found["gain"]["value"] == pytest.approx(1 / 3)
    assert [flip["task_id"] for flip in found["gained"]] == ["t1"]


def test_what_cannot_be_compared_is_told_with_a_sentence(
    api: Api, driver: Driver, judge: Judge
) -> None:
    first = judge(outcomes(True), 1)
    other = judge([replace(one, task_id="elsewhere") for one in outcomes(True)], 2)
    answer = api("GET", f"evaluations/compare?first={first.pk}&second={other.pk}")
    assert answer.status_code == 422
    assert "no task in common" in answer.json()["detail"]
    untold = judge(outcomes(True), 3, parts=2)
    answer = api("GET", f"evaluations/compare?first={first.pk}&second={untold.pk}")
    assert answer.status_code == 409
    assert "Not all trials" in answer.json()["detail"]
    for pk in (10**12, 2**62):
        assert api("GET", f"evaluations/compare?first={pk}&second={pk}").status_code == 404


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"report": {}}, "report"),
        ({"report": {**report(outcomes(True)).to_dict(), "tasks": "many"}}, "report"),
        ({"path": "../../secret"}, "path"),
        ({"trials": -1}, "trials"),
    ],
)
def test_ingest_refuses_what_is_no_evaluation(
    driver: Driver, fields: dict[str, Any], where: str
) -> None:
    outcome = send(driver, items(outcomes(True), 1, **fields)[-1])
    assert [one.field for one in outcome.rejected] == [where]
    assert not RunEvent.objects.filter(kind="evaluation").exists()


ROW = {"task": "t", "category": "c", "results": "10x", "trajectories": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"path": "../../secret"}, "path"),
        ({"part": 64}, "part"),
        ({"part": -1}, "part"),
        ({"rows": [{**ROW, "results": "10"}]}, "rows.0"),
        ({"rows": [{**ROW, "results": "1?x"}]}, "rows.0.results"),
        ({"rows": [ROW] * 700}, "rows"),
        ({"rows": [{**ROW, "task": "t" * 10**6}]}, "rows"),
    ],
)
def test_ingest_refuses_what_are_no_trials(
    driver: Driver, fields: dict[str, Any], where: str
) -> None:
    part = items(outcomes(True), 1)[0]
    outcome = send(driver, {**part, "rows": [ROW], **fields})
    assert [one.field for one in outcome.rejected] == [where]
    assert not TrialPart.objects.exists()


def test_trials_are_stored_once_and_read_as_they_were_told(driver: Driver, judge: Judge) -> None:
    played = [*outcomes(True, False, True), replace(BROKEN, task_id="t1", trial=1), BROKEN]
    event = judge(played, 1)
    told = items(played, 1)
    assert send(driver, *told).duplicates == 2
    assert send(driver, {**told[0], "seq": 999}).accepted == 1  # by a driver that forgot
    one = evaluations.evaluation(event)
    assert evaluations.trials_of(one) == trials(played)
    bare = {task: replace(of, trajectories=[]) for task, of in trials(played).items()}
    assert evaluations.trials_of(one, ids=False) == bare
    ((_, found),) = evaluations.trials_of_each([one])
    assert found == bare


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("10x")), max_size=60), st.data())
def test_parts_put_together_are_the_trials(
    played: list[tuple[int, str]], data: st.DataObject
) -> None:
    by_task: dict[str, Trials] = {}
    for n, (task, result) in enumerate(played):
        held = by_task.get(f"t{task}", Trials("c", "", []))
        names = [*held.trajectories, f"x{n}"]
        by_task[f"t{task}"] = Trials("c", held.results + result, names)
    most = data.draw(st.integers(1, 20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.evaluation.trials.MAX_TRIALS_OF_PART", most)
        cut = list(parts(by_task))
    rows = [row for part in cut for row in part]
    assert {row["task"]: row["results"] for row in rows} == {
        task: of.results for task, of in by_task.items()
    }
    for part in cut:
        assert len(part) == 1 or sum(len(str(row["results"])) for row in part) <= most


def test_many_runs_are_compared_in_the_memory_of_a_few(launch: Callable[..., Run]) -> None:
    solved = [bool(n % 3) for n in range(3_000)]
    first = launch()
    runs = [first]
    judging.judge(first.attempts.get(), outcomes(*solved), 1)
    parts = list(TrialPart.objects.order_by("part"))
    event = RunEvent.objects.get(run=first, kind="evaluation")
    for _ in range(15):
        run = launch()
        runs.append(run)
        attempt = run.attempts.get()
        TrialPart.objects.bulk_create(
            [
                TrialPart(
                    attempt=attempt, path=part.path, part=part.part, tasks=part.tasks,
                    categories=part.categories, results=part.results,
                    trajectories=part.trajectories,
                )
                for part in parts
            ]
        )  # fmt: skip
        RunEvent.objects.create(
            run=run, attempt=attempt, kind=event.kind, source="driver", seq=1, at=1.0, cursor=1,
            data=event.data,
        )  # fmt: skip

    def peak(some: list[Run]) -> int:
        rates = comparing.rates(some)
        tracemalloc.start()
        try:
            found = comparing.against_base(rates)
            assert all(one and one.method == "paired" for one in found[1:])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(runs[:2])
    assert peak(runs) < 1.5 * peak(runs[:3])


@pytest.fixture
def judged(driver: Driver, judge: Judge) -> Run:
    """A run that judges a checkpoint of the other."""
    checkpoint = driver.run.checkpoints.create(
        attempt=driver.attempt, stage=2, step=20, policy_version=9, path="checkpoints/1",
        files={"model.safetensors": {"size": 1}}, created_at=timezone.now(),
    )  # fmt: skip
    wanted = services.Wanted(trials=2, temperature=1.0)
    run = services.evaluate_checkpoint(checkpoint, driver.run.created_by, wanted)  # type: ignore[arg-type]
    played = [*outcomes(True, True, False), *outcomes(True, False, False, trial=1)]
    judge(played, 0, start(run), trials=2, temperature=1.0)
    return run


def test_what_judged_a_checkpoint_stands_under_its_parent(
    api: Api, page: Client, driver: Driver, judge: Judge, judged: Run
) -> None:
    judge(outcomes(True, False), 5)
    found = api("GET", f"runs/{driver.run.pk}/evaluations").json()
    assert {one["run_id"] for one in found} == {driver.run.pk, judged.pk}
    text = page.get(f"/runs/{driver.run.pk}/evaluation").content.decode()
    assert f"stage 2, step 20, by {judged.name}" in text
    assert f"{judged.name} judges a checkpoint of this run." in text
    own = api("GET", f"runs/{judged.pk}/evaluations").json()
    assert [one["run_id"] for one in own] == [judged.pk]


def test_the_page_shows_curves_only_for_several_trials(
    page: Client, driver: Driver, judge: Judge, judged: Run
) -> None:
    several = page.get(f"/runs/{judged.pk}/evaluation").content.decode()
    assert "66.7\u202f%" in several, "pass@2"
    assert "33.3\u202f%" in several, "pass^2"
    assert "2 trials a task, temperature 1" in several
    judge(outcomes(True, False), 5)
    single = RunEvent.objects.get(run=driver.run, kind="evaluation")
    text = page.get(f"/runs/{driver.run.pk}/evaluation?shown={single.pk}").content.decode()
    assert "One trial a task" in text


def test_the_page_tells_how_both_metrics_went(page: Client, driver: Driver, judge: Judge) -> None:
    judge(outcomes(True, False), 1, demonstrations={"loss": 0.1, "token_accuracy": 0.95})
    address = f"/runs/{driver.run.pk}/evaluation"
    assert "With two evaluations of training" in page.get(address).content.decode()
    judge(outcomes(True, True), 2, demonstrations={"loss": 0.3, "token_accuracy": 0.91})
    text = page.get(address).content.decode()
    assert "from 50.0\u202f% to 100.0\u202f%" in text
    assert "from 95.0\u202f% to 91.0\u202f%" in text
    assert "They part here" in text


def test_the_page_compares_two_and_says_what_is_not_known(
    page: Client, driver: Driver, judge: Judge
) -> None:
    first, second = judge(outcomes(False, True), 1), judge(outcomes(True, True), 2)
    address = f"/runs/{driver.run.pk}/evaluation?first={first.pk}&second={second.pk}"
    text = page.get(address).content.decode()
    assert "+50.0 points" in text
    assert "not stored" in text, "of the flipped task, no replay"
    TrialPart.objects.filter(path__contains="step-000002").delete()
    assert "Not all trials" in page.get(address).content.decode()


def test_its_queries_do_not_grow_with_the_evaluations(
    page: Client, driver: Driver, judge: Judge
) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as found:
            assert page.get(f"/runs/{driver.run.pk}/evaluation").status_code == 200
        return len(found)

    judge(outcomes(True), 1)
    count()
    few = count()
    for step in range(2, 12):
        judge(outcomes(True, False), step)
    assert count() == few


def test_a_run_without_any_says_how_to_get_one(page: Client, driver: Driver) -> None:
    text = page.get(f"/runs/{driver.run.pk}/evaluation").content.decode()
    assert "No evaluation yet" in text


def test_checkpoints_are_judged_and_forked_from_their_tab(
    page: Client, driver: Driver, judged: Run
) -> None:
    checkpoint = judged.checkpoint
    assert checkpoint is not None
    text = page.get(f"/runs/{driver.run.pk}/checkpoints").content.decode()
    assert f"?checkpoint={checkpoint.pk}" in text
    address = f"/runs/{driver.run.pk}/evaluate"
    given = {"checkpoint": checkpoint.pk, "trials": "4", "temperature": "0.7", "number": ""}
    answer = page.post(address, given)
    new = Run.objects.order_by("-number")[0]
    assert answer.headers["Location"] == f"/runs/{new.pk}/"
    assert new.spec["stages"][1]["trials"] == 4
    for wrong in ({"trials": "0"}, {"trials": "many"}, {"temperature": "nan"}):
        answer = page.post(address, {**given, **wrong}, follow=True)
        assert answer.redirect_chain[-1][0] == f"/runs/{driver.run.pk}/checkpoints"
    assert page.post(address, {**given, "checkpoint": "ckp_0"}).status_code == 404
    assert Run.objects.count() == 3


def test_the_launch_page_opens_with_the_parents_spec_and_says_what_does_not_fit(
    page: Client, driver: Driver, judged: Run
) -> None:
    project, checkpoint = driver.run.project_id, judged.checkpoint
    assert checkpoint is not None
    address = f"/projects/{project}/launch/"
    text = page.get(f"{address}?checkpoint={checkpoint.pk}").content.decode()
    assert f"Fork of {driver.run.name}" in text
    assert f'data-checkpoint="{checkpoint.pk}"' in text
    body = {
        "text": json.dumps({**driver.run.spec, "seed": 7}),
        "parent": driver.run.pk,
        "checkpoint": checkpoint.pk,
    }
    answer = page.post(f"{address}check", json.dumps(body), content_type="application/json")
    assert [problem["path"] for problem in answer.json()["problems"]] == ["seed"]
    form = {"text": json.dumps(driver.run.spec), "checkpoint": checkpoint.pk, "experiment": "e"}
    answer = page.post(address, form)
    new = Run.objects.order_by("-number")[0]
    assert answer.headers["Location"] == f"/runs/{new.pk}/"
    assert (new.parent, new.checkpoint) == (driver.run, checkpoint)
    assert page.get(f"{address}?checkpoint=ckp_0").status_code == 404
