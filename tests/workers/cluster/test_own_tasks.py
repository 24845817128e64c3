"""Tasks of a dataset: each row read or refused, kept once, dealt to the two sets that judge."""

import json

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.environments.protocol import Task
from engine.spec import (
    EnvironmentSpec,
    EvaluateStage,
    EvaluationSpec,
    ExperimentSpec,
    RlStage,
    SynthesiseStage,
)
from engine.spec.disagreements import disagreements
from engine.synthesis import Tokenizer
from workers.cluster import own_tasks, stored_rows
from workers.cluster.storage import RunStorage

VERSION, OTHER = "ver_0123456789abcdef", "ver_0000000000000000"
PROMPT = "What is it?"


@pytest.fixture
def storage(tmp_path) -> RunStorage:
    storage = RunStorage(str(tmp_path))
    Tokenizer.train([PROMPT], 320).save(storage.path("synthesis/tokenizer"))
    return storage


def spec(evaluation: EvaluationSpec | None = None, **stage) -> ExperimentSpec:
    return ExperimentSpec(
        name="small",
        environment=EnvironmentSpec(max_tokens=80, max_turn_tokens=40),
        stages=[SynthesiseStage(), RlStage(dataset=VERSION, **stage)],
        evaluation=evaluation or EvaluationSpec(),
    )


def put(storage: RunStorage, *rows: dict) -> None:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    storage.path(stored_rows.file_of(VERSION)).write_bytes(zstandard.compress(data))


def test_rows_become_tasks_and_refusals_are_counted_by_reason(storage):
    put(
        storage,
        {"prompt": PROMPT, "answer": "x", "category": "city", "hops": 2, "more": [1]},
        {"prompt": "其他 \ud800", "answer": "x"},
        {"prompt": PROMPT, "answer": 7},
        {"prompt": PROMPT, "answer": "x"},
        {"prompt": "y" * 99, "answer": "x"},
        {"prompt": PROMPT, "answer": ["x"]},
        {"prompt": PROMPT, "answer": True},
        {"prompt": "", "answer": "x"},
        {"prompt": "还有什么?", "answer": "北京", "hops": 3},
    )
    found = own_tasks.make(storage, spec(), VERSION)
    assert (found["rows"], found["rows_used"]) == (9, 3)
    assert found["rows_refused"] == {
        "duplicate": 1, "too long": 1, "not of this form": 4,
    }  # fmt: skip
    assert found["categories"] == ["city", "none"]
    kept = own_tasks.load(storage, VERSION)
    assert [(one.prompt, one.answer, one.category, one.hops) for one in kept] == [
        (PROMPT, "x", "city", 2), (PROMPT, "7", "none", 0), ("还有什么?", "北京", "none", 3),
    ]  # fmt: skip
    assert len({one.id for one in kept}) == 3


def test_they_are_read_once_though_the_rows_be_gone(storage):
    put(storage, {"prompt": PROMPT, "answer": "x"})
    found = own_tasks.make(storage, spec(), VERSION)
    storage.path(stored_rows.file_of(VERSION)).unlink()
    assert own_tasks.make(storage, spec(), VERSION) == found
    with pytest.raises(FileNotFoundError, match=OTHER):
        own_tasks.load(storage, OTHER)


def test_a_prompt_of_the_longest_length_leaves_room_for_one_turn(storage):
    tokenizer = Tokenizer.load(storage.path("synthesis/tokenizer"))
    fits = "x"
    while len(tokenizer.encode_prompt(task(fits + "x"))) <= 40:
        fits += "x"
    put(storage, {"prompt": fits, "answer": "a"}, {"prompt": fits + "x", "answer": "a"})
    found = own_tasks.make(storage, spec(), VERSION)
    assert found["rows_refused"] == {"too long": 1}
    assert [one.prompt for one in own_tasks.load(storage, VERSION)] == [fits]


def task(prompt: str) -> Task:
    return Task(prompt, "none", prompt, "a", 0)


@given(st.integers(2, 400), st.integers(10, 200), st.integers(10, 200))
def test_the_two_sets_that_judge_have_no_task_in_common(count: int, tasks: int, quick: int) -> None:
    evaluation = EvaluationSpec(dataset=OTHER, tasks=tasks, quick_tasks=quick)
    rows = [task(str(number)) for number in range(count)]
    final, during = own_tasks.split(rows, spec(evaluation))
    assert final and during and final + during == rows[: len(final) + len(during)]
    assert len(final) <= tasks and len(during) <= quick
    assert len(final) + len(during) == min(count, tasks + quick)
    if count < tasks + quick:
        assert abs(len(during) - count * quick / (tasks + quick)) <= 1


def test_one_task_is_enough_for_a_run_that_plays_no_quick_ones(storage):
    put(storage, {"prompt": PROMPT, "answer": "x"})
    trains = spec(EvaluationSpec(dataset=VERSION))
    judges = trains.model_copy(update={"stages": [SynthesiseStage(), EvaluateStage()]})
    quick = EvaluateStage(tasks="quick")
    both = judges.model_copy(update={"stages": [SynthesiseStage(), quick]})
    found = [own_tasks.needed(one, VERSION) for one in (trains, judges, both)]
    assert found == [2, 1, 2]
    assert own_tasks.needed(trains, OTHER) == 1  # that it trains on
    own_tasks.make(storage, judges, VERSION)
    assert [one.prompt for one in own_tasks.judged(storage, judges, "held_out")] == [PROMPT]
    assert own_tasks.judged(storage, judges, "quick") == []


def test_a_run_is_judged_by_the_tasks_of_its_evaluation_s_dataset(storage):
    put(storage, *({"prompt": f"{PROMPT}{number}", "answer": "x"} for number in range(30)))
    judged = spec(EvaluationSpec(dataset=VERSION, tasks=10, quick_tasks=10))
    own_tasks.make(storage, judged, VERSION)
    final = own_tasks.judged(storage, judged, "held_out")
    assert [one.prompt for one in final] == [f"{PROMPT}{number}" for number in range(10)]
    quick = own_tasks.judged(storage, judged, "quick")
    assert [one.prompt for one in quick] == [f"{PROMPT}{number}" for number in range(10, 20)]


def test_tasks_that_a_run_trains_on_and_is_judged_by_are_counted(storage):
    put(storage, *({"prompt": f"{PROMPT}{number}", "answer": "x"} for number in range(30)))
    judged = spec(EvaluationSpec(dataset=VERSION, tasks=10, quick_tasks=10))
    own_tasks.make(storage, judged, VERSION)
    rows = [{"prompt": f"{PROMPT}{number}", "answer": "y"} for number in (0, 12, 25, 40)]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    storage.path(stored_rows.file_of(OTHER)).write_bytes(zstandard.compress(data))
    own_tasks.make(storage, judged, OTHER)
    assert own_tasks.judged_too(storage, judged, OTHER) == 2  # neither 25 nor 40 is played


def test_on_remote_storage_they_are_there_for_whoever_comes_later(tmp_path):
    place = f"memory:/{tmp_path}"
    driver = RunStorage(place)
    Tokenizer.train([PROMPT], 320).save(driver.path("synthesis/tokenizer"))
    driver.publish("synthesis")
    put(driver, *({"prompt": f"{PROMPT}{number}", "answer": "x"} for number in range(3)))
    driver.publish(stored_rows.file_of(VERSION))
    judged = spec(EvaluationSpec(dataset=VERSION))
    made = own_tasks.make(driver, judged, VERSION)
    worker = RunStorage(place)
    sets = [own_tasks.judged(worker, judged, name) for name in own_tasks.JUDGED]
    assert [[one.prompt for one in part] for part in sets] == [
        [f"{PROMPT}0", f"{PROMPT}1"], [f"{PROMPT}2"],
    ]  # fmt: skip
    assert len(own_tasks.load(worker, VERSION)) == 3
    assert own_tasks.make(RunStorage(place), judged, VERSION) == made


def test_what_a_dataset_makes_meaningless_is_refused_and_named():
    def paths(made: ExperimentSpec) -> set[tuple[str, ...]]:
        return {one.paths for one in disagreements(made)}

    own = {"pool": {"gate": {"shares": {"city": 1.0}}}}
    assert paths(spec().model_validate(spec().model_dump() | own)) == set()
    assert ("stages.1.hops", "stages.1.dataset") in paths(spec(hops=[3]))
    both = spec(EvaluationSpec(dataset=VERSION))
    assert ("stages.1.dataset", "evaluation.dataset") in paths(both)
    hops = spec(EvaluationSpec(dataset=OTHER, hops=[2]))
    assert ("evaluation.hops", "evaluation.dataset") in paths(hops)
