"""What a stage waits for, and what one that is taken up again owes of the attempt before it."""

from types import SimpleNamespace
from typing import Any

import pytest

from engine.spec import (
    EvaluateStage,
    EvaluationSpec,
    ExperimentSpec,
    OpdStage,
    RlStage,
    SynthesiseStage,
    TeacherSpec,
)
from engine.spec.sampled import SampledStage
from workers.cluster import driver, fetching, judging, limits, stages
from workers.cluster.attempt import Attempt
from workers.cluster.control import Latches
from workers.cluster.crew import LimitError
from workers.cluster.fetching import StoredRowsError
from workers.cluster.storage import RunStorage

STAGE = RlStage(steps=30)
VERSION = "ver_0123456789abcdef"


@pytest.mark.parametrize(
    ("step", "reported_by", "owed"),
    [
        (10, None, [10]),  # it was due, and died with the attempt that had begun it
        (10, 1, []),
        (10, 2, [10]),  # of a later attempt than this one: nobody has told it of that
        (0, None, []),
        (12, None, []),
        (30, None, []),  # all held-out tasks follow instead
    ],
)
def test_an_evaluation_that_nobody_lived_to_report_is_played_again(
    tmp_path, monkeypatch, step, reported_by, owed
):
    storage = RunStorage(str(tmp_path))
    spec = ExperimentSpec(name="x", stages=[SynthesiseStage(), STAGE])
    attempt = Attempt(spec, 1, None, storage, None, None, None)
    if reported_by:
        name = judging.outcomes_file(reported_by, "quick", 1, step)
        storage.write_json(name, {"outcomes": []})
    begun = []
    monkeypatch.setattr(judging, "start", lambda attempt, plan, index, step: begun.append(step))
    stages._owed(attempt, 1, step, STAGE)
    assert begun == owed


class Answers:
    """A pool that gives these batches, one at each question; then it is asked what it holds."""

    def __init__(self, *batches: str | None) -> None:
        self.batches = list(batches)
        self.pool = self.take = self.snapshot = self

    def remote(self, *arguments: Any) -> None:
        pass

    def wait(self, refs: Any, limit_s: float, what: str) -> list[Any]:
        held = {"waiting": 1, "produced": 2, "discarded": {}}
        return [self.batches.pop(0) if self.batches else held]


def asked(
    monkeypatch: pytest.MonkeyPatch, *batches: str | None, latches: Latches, playing: Any
) -> Any:
    monkeypatch.setattr(limits, "BATCH_S", 1e-9)
    control = SimpleNamespace(wants_end=False, latches=latches)
    attempt: Any = SimpleNamespace(control=control, crew=Answers(*batches))
    return stages._next_batch(attempt, 5, playing)


@pytest.mark.parametrize(
    ("latches", "playing"),
    [
        (Latches(rollouts=True), None),
        (Latches(training=True), None),
        (Latches(), SimpleNamespace(is_done=lambda: False)),
    ],
)
def test_neither_a_pause_nor_an_evaluation_spends_the_time_for_a_batch(
    monkeypatch, latches, playing
):
    assert asked(monkeypatch, None, None, "batch", latches=latches, playing=playing) == "batch"


@pytest.mark.parametrize("playing", [None, SimpleNamespace(is_done=lambda: True)])
def test_a_batch_that_does_not_come_ends_the_wait_with_what_the_pool_holds(monkeypatch, playing):
    with pytest.raises(LimitError, match="No batch for step 5 .* 1 groups wait, 2 were produced"):
        asked(monkeypatch, None, latches=Latches(), playing=playing)


def of_own_tasks(
    monkeypatch: pytest.MonkeyPatch,
    made: Any,
    judged: Any,
    shares: Any,
    judged_too: int = 0,
    stage: SampledStage | None = None,
) -> tuple[Any, list[str]]:
    """What comes of a stage on these tasks, that an attempt before has taken all steps of, and what
    the run's log warned of."""
    warned: list[str] = []
    pool = SimpleNamespace(gate=SimpleNamespace(shares=shares))
    attempt: Any = SimpleNamespace(
        spec=SimpleNamespace(pool=pool),
        storage=SimpleNamespace(),
        reporter=SimpleNamespace(log=lambda text, level: warned.append(text)),
        begin=lambda index: None,
        ended_at=lambda index: 30,
    )
    monkeypatch.setattr(stages.own_tasks, "judged_too", lambda storage, spec, version: judged_too)
    monkeypatch.setattr(fetching, "fetch_tasks", lambda attempt, index, version: made)
    monkeypatch.setattr(stages, "judge", lambda attempt, index, step: judged)
    monkeypatch.setattr(stages.teachers, "completion_by_category", lambda *arguments: {})
    return stages.reinforce(attempt, 1, stage or RlStage(dataset=VERSION)), warned


def test_a_stage_on_own_tasks_says_what_was_read_of_them(monkeypatch):
    made = {"dataset": VERSION, "rows_used": 2, "categories": ["city", "none"]}
    judged = {"completion_rate": 0.5}
    found, warned = of_own_tasks(monkeypatch, {**made}, judged, {})
    assert found == {"completion_rate": 0.5, "dataset": VERSION, "rows_used": 2}
    assert not warned
    assert judged == {"completion_rate": 0.5}, "an evaluation's summary is its own"
    assert of_own_tasks(monkeypatch, {**made}, None, {"city": 0.5, "none": 0.5})[0] is None
    assert of_own_tasks(monkeypatch, None, judged, {})[0] is None, "the end was asked for"


def test_tasks_that_judge_as_well_as_train_are_counted_and_warned_of(monkeypatch):
    made = {"dataset": VERSION, "rows_used": 9, "categories": ["city"]}
    found, warned = of_own_tasks(monkeypatch, made, {"completion_rate": 0.5}, {}, judged_too=4)
    assert found["judged_too"] == 4
    assert len(warned) == 1
    assert warned[0].startswith(f"4 tasks of dataset version {VERSION}")


def test_a_gate_of_other_categories_than_the_tasks_is_refused(monkeypatch):
    made = {"dataset": VERSION, "rows_used": 2, "categories": ["city", "none"]}
    with pytest.raises(StoredRowsError, match="has tasks of city, none: 3 hops, city stands on"):
        of_own_tasks(monkeypatch, made, {}, {"3 hops": 0.5, "none": 0.5})


def test_a_category_that_no_teacher_has_is_refused_before_a_step_is_taken(monkeypatch):
    made = {"dataset": VERSION, "rows_used": 9, "categories": ["city", "none"]}
    one = TeacherSpec(stage=0, categories=["city"])
    stage = OpdStage(dataset=VERSION, teachers=[one])
    with pytest.raises(StoredRowsError, match="stages.1.teachers.* Nobody teaches tasks of none:"):
        of_own_tasks(monkeypatch, made, {}, {}, stage=stage)
    strange = OpdStage(dataset=VERSION, teachers=[one, TeacherSpec(stage=1, categories=["sea"])])
    with pytest.raises(StoredRowsError, match="teaches sea; its dataset has tasks of city only"):
        of_own_tasks(monkeypatch, {**made, "categories": ["city"]}, {}, {}, stage=strange)
    with pytest.raises(StoredRowsError, match="The gate"):
        of_own_tasks(monkeypatch, made, {}, {"sea": 1.0}, stage=stage)
    taught = OpdStage(dataset=VERSION, teachers=[one, TeacherSpec(stage=1, categories=["none"])])
    found, _ = of_own_tasks(monkeypatch, made, {"completion_rate": 0.5}, {}, stage=taught)
    assert (found["rows_used"], found["completion_rate"]) == (9, 0.5)


def test_an_end_asked_for_while_the_tasks_that_judge_are_fetched_starts_no_crew(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(stages, "synthesise", lambda attempt, index: {})
    monkeypatch.setattr(stages, "fetch_tasks", lambda attempt, index, version: None)
    checked: list[bool] = []
    crew: Any = SimpleNamespace(trainers=[], check=lambda: checked.append(True))
    spool = SimpleNamespace(add=lambda kind, **fields: True)
    control: Any = SimpleNamespace(command="stop")
    spec = ExperimentSpec(
        name="x",
        stages=[SynthesiseStage(), EvaluateStage()],
        evaluation=EvaluationSpec(dataset=VERSION),
    )
    reporter: Any = SimpleNamespace(spool=spool)
    storage = RunStorage(str(tmp_path))
    end = driver.take_stages(Attempt(spec, 1, None, storage, control, reporter, crew))
    assert (end.state, end.summary["model"], checked) == ("stopped", "", [True])
