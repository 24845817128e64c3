"""Backtests over stored shards and datasets, against grading everything naively."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engine.records.shards import write_shard
from engine.records.trajectory import StopReason, Trajectory
from engine.rewards import RewardScheme as Definition
from engine.rewards import backtest, score
from tests.webapp.reviews.samples import lookup, trajectory
from tests.webapp.support import Api, start
from webapp import storage
from webapp.accounts.models import Project, User
from webapp.experiments import backtests, services
from webapp.experiments.jobs import Working
from webapp.experiments.models import Job, Run
from webapp.experiments.services.schemes import check_definition
from webapp.problems import RefusedError
from webapp.reviews import bulk_reading
from webapp.reviews.models import Trajectory as Row
from workers.control import jobs as worker

pytestmark = pytest.mark.django_db

OLD = {"name": "outcome", "terms": [{"kind": "exact_answer", "weight": 1.0}]}
NEW = {
    "name": "plain-speech",
    "terms": [
        {"kind": "exact_answer", "weight": 1.0},
        {"kind": "repetition", "weight": -3.0, "ngram": 2},
        {"kind": "tool_error_count", "weight": -0.2},
    ],
}

WORDS = ["go", "on", "and", "look", "there", "再", "看", "一", "看"]


def episodes(seed: int, count: int, prefix: str = "t") -> list[Trajectory]:
    """Groups of four with texts that repeat themselves more or less, some of them long."""
    draw = random.Random(seed)
    made = []
    for index in range(count):
        words = draw.choices(WORDS, k=draw.randrange(1, 30))
        long = "word " * 5000 if index % 7 == 3 else ""  # a field in a frame of its own
        error = draw.choice([None, "invalid_json", "timeout"])
        answer = draw.choice(["Euro", "Yen"])
        one = trajectory(
            [
                (" ".join(words) + long, lookup("Lyon", "country", "法国" * 9000, error), None),
                (" ".join(reversed(words)), None, answer),
            ],
            name=f"{prefix}{index}",
            group=f"g{index // 4}",
            stop=draw.choice([StopReason.ANSWERED, StopReason.ANSWERED, StopReason.INFRA_ERROR]),
        )
        one.answer = "Euro"
        made.append(one)
    return made


def store(run: Run, shards: Sequence[list[Trajectory]]) -> None:
    attempt = run.attempts.get()
    for number, made in enumerate(shards):
        blob, sha256, rows = write_shard(made)
        storage.put_blob(blob)
        for place, row in enumerate(rows):
            Row.objects.create(
                run=run, attempt=attempt, project=run.project, shard=sha256,
                cursor=1000 * number + place, **row,
            )  # fmt: skip


@pytest.fixture
def played(run: Run) -> list[Trajectory]:
    start(run)
    made = episodes(1, 60)
    draw = random.Random(2)
    mixed = draw.sample(made, len(made))
    store(run, [mixed[:25], mixed[25:31], mixed[31:]])
    return made


def asked(project: Project, owner: User, **given: Any) -> Job:
    return services.start_backtest(project, owner, check_definition(NEW), **given)


def done(job: Job) -> dict[str, Any]:
    worker.work(job.pk)
    job.refresh_from_db()
    assert job.state == "succeeded", job.state_reason
    assert job.result is not None
    return dict(job.result)


def naive(old: Any, made: list[Trajectory]) -> dict[str, Any]:
    """Every trajectory graded as it was made, in memory, with its tokens."""
    found = backtest(Definition.model_validate(old), Definition.model_validate(NEW), made)
    plain: dict[str, Any] = json.loads(json.dumps(found, default=vars))
    return plain


def in_any_order(result: dict[str, Any]) -> dict[str, Any]:
    """Equal changes may be listed in either order."""
    plain = {k: v for k, v in result.items() if k not in ("trajectories", "unread", "seconds")}
    for side in ("gainers", "losers"):
        plain[side] = sorted(round(one["new"] - one["old"], 9) for one in plain[side])
    return plain


def test_it_says_what_grading_everything_in_memory_says(
    project: Project, owner: User, run: Run, played: list[Trajectory]
) -> None:
    result = done(asked(project, owner, runs=[run]))
    expected = naive(run.spec["reward"], played)
    for side in ("old", "new"):
        for name in ("mean", "deviation"):
            assert result[side].pop(name) == pytest.approx(expected[side].pop(name))
    assert in_any_order(result) == in_any_order(expected)
    assert (result["trajectories"], result["unread"]) == (60, {})
    assert result["flips"] > 0 and result["new"]["invalid"] > 0
    assert result["losers"][0]["terms"].keys() == {"exact_answer", "repetition", "tool_error_count"}


def test_it_compares_with_a_version_and_narrows(
    project: Project, owner: User, run: Run, played: list[Trajectory]
) -> None:
    scheme = services.create_scheme(project, owner, check_definition({**NEW, "name": "same"}))
    same = done(asked(project, owner, runs=[run], against=scheme))
    assert same["flips"] == 0 and same["losers"] == same["gainers"] == []
    assert same["old"]["counts"] == same["new"]["counts"]
    newest = done(asked(project, owner, runs=[run], newest=7))
    assert newest["trajectories"] == 7
    right = done(asked(project, owner, runs=[run], filter={"stop_reason": "answered"}))
    answered = [one for one in played if one.stop_reason is StopReason.ANSWERED]
    assert right["trajectories"] == len(answered)


def test_groups_of_two_runs_are_not_one(project: Project, owner: User, launch: Any) -> None:
    runs = [launch(name="a"), launch(name="b")]
    for number, run in enumerate(runs):
        start(run)
        store(run, [episodes(5, 8, f"r{number}-")])
    assert done(asked(project, owner, runs=runs))["groups"] == 4


def test_what_cannot_be_read_is_counted_and_said(
    project: Project, owner: User, run: Run, played: list[Trajectory]
) -> None:
    shards = list(Row.objects.order_by("shard").values_list("shard", flat=True).distinct())
    counts = {shard: Row.objects.filter(shard=shard).count() for shard in shards}
    storage.remove_blob(shards[0])
    Row.objects.filter(shard=shards[1]).update(offset=1)
    job = asked(project, owner, runs=[run])
    result = done(job)
    assert result["unread"] == {
        bulk_reading.GONE: counts[shards[0]],
        bulk_reading.DAMAGED: counts[shards[1]],
    }
    assert bulk_reading.GONE in job.log
    for shard in shards[1:]:
        storage.remove_blob(shard)
    failed = asked(project, owner, runs=[run])
    worker.work(failed.pk)
    failed.refresh_from_db()
    assert (failed.state, "None of the trajectories" in failed.state_reason) == ("failed", True)


def test_it_stops_when_asked(
    project: Project, owner: User, run: Run, played: list[Trajectory], monkeypatch: Any
) -> None:
    job = asked(project, owner, runs=[run])
    seen = 0

    def grade(*arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == 10:
            services.cancel_job(job.pk, owner)
        return score(*arguments)

    monkeypatch.setattr(backtests, "score", grade)
    monkeypatch.setattr("webapp.experiments.jobs.WRITE_EVERY_S", 0.0)
    monkeypatch.setattr(Working.__init__, "__defaults__", (0.0,))
    worker.work(job.pk)
    job.refresh_from_db()
    assert (job.state, job.result) == ("stopped", None)
    assert seen < 15 and 0 < job.done < 60


def rows_of(made: list[Trajectory]) -> list[bytes]:
    return [json.dumps(one.to_dict()).encode() for one in made]


def test_a_dataset_is_graded_like_the_runs_that_it_came_from(project: Project, owner: User) -> None:
    made = episodes(3, 24)
    dataset = services.create_dataset(project, owner, "kept", "trajectories")
    foreign = [
        json.dumps({"id": "x", "prompt": "p", "steps": []}).encode(),
        json.dumps({"id": "y", "prompt": "p", "answer": "a", "stop_reason": "?", "steps": []})
        .encode(),
        json.dumps({"id": "z", "prompt": "p", "answer": None, "stop_reason": "answered",
                    "steps": []}).encode(),
    ]  # fmt: skip
    rows = [*rows_of(made), *foreign]
    version = services.add_dataset_version(dataset, owner, rows, source={"kind": "upload"})
    scheme = services.create_scheme(project, owner, check_definition(OLD))
    result = done(asked(project, owner, dataset=version, against=scheme))
    expected = naive(OLD, made)
    assert result["trajectories"] == 24
    assert sum(result["unread"].values()) == 3 and "the row has no answer" in result["unread"]
    assert (result["flips"], result["groups"]) == (expected["flips"], expected["groups"])
    assert result["new"]["counts"] == expected["new"]["counts"]


def test_it_refuses_what_cannot_be_graded(project: Project, owner: User, run: Run) -> None:
    tasks = services.create_dataset(project, owner, "tasks", "tasks")
    row = b'{"prompt": "a", "answer": "b"}'
    version = services.add_dataset_version(tasks, owner, [row], source={"kind": "upload"})
    scheme = services.create_scheme(project, owner, check_definition(OLD))
    for given, message in (
        ({}, "Choose runs or a dataset"),
        ({"runs": [run], "dataset": version}, "Choose runs or a dataset"),
        ({"dataset": version, "against": scheme}, "holds tasks"),
        ({"runs": [run] * 101}, "100 at most"),
    ):
        with pytest.raises(RefusedError, match=message):
            asked(project, owner, **given)
    Run.objects.update(spec={"reward": {"name": "x", "terms": [{"kind": "gone"}]}})
    run.refresh_from_db()
    with pytest.raises(RefusedError, match="of an older form"):
        asked(project, owner, runs=[run])
    Run.objects.update(spec={})
    run.refresh_from_db()
    with pytest.raises(RefusedError, match="has no reward scheme"):
        asked(project, owner, runs=[run])
    assert asked(project, owner, runs=[run], against=scheme).state == "queued"


def test_the_api_starts_one(api: Api, project: Project, owner: User, run: Run, played: Any) -> None:
    scheme = services.create_scheme(project, owner, check_definition(NEW))
    body = {"scheme_version": scheme.pk, "runs": [run.pk], "filter": {"purpose": "train"}}
    answer = api("POST", "backtests", body)
    assert answer.status_code == 202 and answer.json()["subject"] == scheme.digest
    done(Job.objects.get(pk=answer.json()["id"]))
    shown = api("GET", f"jobs/{answer.json()['id']}").json()
    assert shown["result"]["trajectories"] == 60
    found = api("GET", f"jobs?kind=backtest&subject={scheme.digest}").json()["items"]
    assert [one["id"] for one in found] == [shown["id"]]
    draft = api("POST", "backtests", {"definition": NEW, "runs": [run.pk]})
    assert draft.status_code == 202
    both = api("POST", "backtests", {**body, "definition": NEW})
    assert both.json()["errors"][0]["path"] == "scheme_version"
    wrong = api("POST", "backtests", {"definition": {"name": "x", "terms": []}, "runs": [run.pk]})
    assert wrong.json()["errors"][0]["path"] == "terms"
    filtered = api("POST", "backtests", {**body, "filter": {"colour": "red"}})
    assert filtered.status_code == 422


def test_its_page_links_to_replays_and_saves_what_was_tried(
    page: Client, project: Project, run: Run, played: list[Trajectory]
) -> None:
    form = {"use.exact_answer": "1", "weight.exact_answer": "1", "use.repetition": "1",
            "weight.repetition": "-0.7", "ngram.repetition": "2", "name": "<b>drafted"}  # fmt: skip
    shown = page.post(f"/projects/{project.pk}/rewards/new", {**form, "then": "backtest"})
    text = shown.content.decode()
    assert shown.status_code == 200 and "&lt;b&gt;drafted" in text and run.name in text
    definition = json.dumps(shown.context["definition"].model_dump(mode="json"))
    started = page.post(
        f"/projects/{project.pk}/backtests/new", {"definition": definition, "runs": [run.pk]}
    )
    job = Job.objects.get()
    assert started["Location"] == f"/jobs/{job.pk}/"
    assert page.get(f"/backtests/{job.pk}/")["Location"] == f"/jobs/{job.pk}/"
    result = done(job)
    polled = page.get(f"/jobs/{job.pk}/", headers={"HX-Request": "true"})
    assert polled["HX-Redirect"] == f"/backtests/{job.pk}/"
    text = page.get(f"/backtests/{job.pk}/").content.decode()
    assert f'href="/trajectories/{result["losers"][0]["trajectory_id"]}/"' in text
    assert "Save and launch with it" in text
    saved = page.post(f"/backtests/{job.pk}/save", {"then": "launch"})
    version = project.reward_schemes.get(name="<b>drafted").versions.get()
    assert saved["Location"] == f"/projects/{project.pk}/launch/?reward={version.pk}"
    assert page.get(saved["Location"]).status_code == 200
    page.post(f"/backtests/{job.pk}/save", {"then": "save"})
    assert project.reward_schemes.get(name="<b>drafted").versions.count() == 1
    text = page.get(f"/backtests/{job.pk}/").content.decode()
    assert f"launch/?reward={version.pk}" in text and "Save as a version" not in text
    text = page.get(f"/rewards/{version.scheme_id}/").content.decode()
    assert f"/backtests/{job.pk}/" in text


def test_the_form_names_what_is_missing(page: Client, project: Project, run: Run) -> None:
    definition = json.dumps(check_definition(NEW).model_dump(mode="json"))
    answer = page.post(f"/projects/{project.pk}/backtests/new", {"definition": definition})
    assert answer.status_code == 422 and "Choose runs or a dataset" in answer.content.decode()
    given = {"definition": definition, "runs": [run.pk], "newest": "few"}
    assert page.post(f"/projects/{project.pk}/backtests/new", given).status_code == 422
    assert page.post(f"/projects/{project.pk}/backtests/new", {}).status_code == 404


def test_it_reads_shards_in_few_pieces(run: Run, played: list[Trajectory]) -> None:
    pieces = []
    read = storage.read_blob

    def counted(sha256: str, offset: int = 0, length: int | None = None) -> bytes:
        pieces.append(length)
        return read(sha256, offset, length)

    with pytest.MonkeyPatch.context() as patch, CaptureQueriesContext(connection) as queries:
        patch.setattr(storage, "read_blob", counted)
        found = {one.place.id: one.trajectory for one in bulk_reading.read_many(Row.objects.all())}
        assert len(pieces) == 3
        patch.setattr(bulk_reading, "PIECE", 1)
        pieces.clear()
        assert len(list(bulk_reading.read_many(Row.objects.all()))) == len(pieces) == 60
    assert len(queries) <= 2
    for one in played:
        taken = found[one.id]
        assert taken is not None
        assert (taken.steps, taken.stop_reason) == (one.steps, one.stop_reason)
