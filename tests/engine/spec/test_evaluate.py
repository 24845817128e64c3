"""Evaluations in a spec, and what a run that starts from a checkpoint must have in common."""

from typing import Any

import pytest

from engine.spec import ExperimentSpec, problems_of
from engine.spec.fork import fork_disagreements


def spec_with(stage: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    stages: list[dict[str, Any]] = [{"kind": "synthesise"}, {"kind": "sft"}]
    if stage is not None:
        stages.append({"kind": "evaluate", **stage})
    return {"name": "try", "stages": stages, **fields}


def problems(data: dict[str, Any]) -> dict[str, str]:
    _, found = problems_of(data)
    return {one.path: one.message for one in found}


def valid(**fields: Any) -> ExperimentSpec:
    spec, found = problems_of(spec_with(**fields))
    assert spec is not None, found
    return spec


def test_a_run_may_end_with_an_evaluation_and_judges_greedily_where_nothing_is_said() -> None:
    assert problems(spec_with({"trials": 8, "temperature": 0.7, "hops": [4], "number": 50})) == {}
    how = valid().evaluation
    assert (how.trials, how.temperature) == (1, 0.0)


@pytest.mark.parametrize(
    ("stage", "fields", "says"),
    [
        ({"trials": 4}, {"trials", "temperature"}, "would all be the same"),
        ({"hops": [2]}, {"hops"}, "only 3 or 4 are held out"),
        ({"number": 601}, {"number"}, "only 600 are drawn"),
        ({"tasks": "quick", "number": 121}, {"number"}, "only 120 are drawn"),
        ({"trials": 0}, {"trials"}, "greater than or equal to 1"),
        ({"temperature": -1}, {"temperature"}, "greater than or equal to 0"),
        ({"tasks": "practice"}, {"tasks"}, "held_out"),
        ({"optimizer": {}}, {"optimizer"}, "does not exist"),
    ],
)
def test_what_an_evaluation_cannot_honour_is_refused_at_its_fields(
    stage: dict[str, Any], fields: set[str], says: str
) -> None:
    found = problems(spec_with(stage))
    assert {f"stages.2.{name}" for name in fields} <= found.keys()
    assert all(says in found[f"stages.2.{name}"] for name in fields)


def test_trials_of_a_task_must_fit_into_a_worker() -> None:
    found = problems(
        spec_with(
            evaluation={"trials": 9, "temperature": 1}, rollout={"slots": 8}, pool={"capacity": 1}
        )
    )
    assert set(found) == {"evaluation.trials", "rollout.slots"}
    assert problems(spec_with(evaluation={"trials": 2})).keys() == {
        "evaluation.trials",
        "evaluation.temperature",
    }


def test_a_fork_may_change_how_it_trains() -> None:
    other = valid(
        trainer={"pack_tokens": 512},
        evaluation={"every_steps": 3, "trials": 2, "temperature": 1},
        model={"init_std": 0.1},
    )
    assert list(fork_disagreements(other, valid())) == []


@pytest.mark.parametrize(
    ("fields", "path", "says"),
    [
        ({"seed": 5}, "seed", "made with seed 0"),
        ({"environment": {"graph": {"cities": 60}}}, "environment.graph.cities", "2000"),
        ({"evaluation": {"tasks": 50}}, "evaluation.tasks", "600"),
        ({"model": {"width": 64}}, "model.width", "of a model with model.width 128"),
        ({"model": {"vocab_size": 500}}, "model.vocab_size", "leave its shape"),
    ],
)
def test_a_fork_is_refused_where_tasks_or_weights_would_not_fit(
    fields: dict[str, Any], path: str, says: str
) -> None:
    (found,) = fork_disagreements(valid(**fields), valid())
    assert found.paths == (path,)
    assert says in found.message


def test_a_fork_names_each_field_of_another_synthesis() -> None:
    data = spec_with()
    data["stages"][0] |= {"detour_share": 0.5, "tasks": {"1": 5}, "demonstrations": {"1": 5}}
    spec, _ = problems_of({**data, "evaluation": {"hops": [1]}})
    assert spec is not None
    (found,) = fork_disagreements(spec, valid())
    assert {"stages.0.detour_share", "stages.0.tasks.2", "evaluation.hops"} <= set(found.paths)


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"position": 600}, {"stages.2.position", "evaluation.tasks"}),
        ({"position": 0, "number": 1}, {"stages.2.number", "stages.2.position"}),
        ({"position": 0, "hops": [3]}, {"stages.2.hops", "stages.2.position"}),
        ({"question": "Why?"}, {"stages.2.answer", "stages.2.question"}),
        ({"answer": "So"}, {"stages.2.answer", "stages.2.question"}),
        (
            {"question": "Why?", "answer": "So", "position": 1},
            {"stages.2.position", "stages.2.question"},
        ),
        ({"question": ""}, {"stages.2.question"}),
        ({"position": -1}, {"stages.2.position"}),
    ],
)
def test_one_task_is_named_in_one_way(fields: dict[str, object], paths: set[str]) -> None:
    stages = [{"kind": "synthesise"}, {"kind": "sft"}, {"kind": "evaluate", **fields}]
    data = {"name": "x", "stages": stages, "evaluation": {"tasks": 600, "hops": [3, 4]}}
    _, problems = problems_of(data)
    assert {one.path for one in problems} == paths


def test_one_task_may_be_played_several_times() -> None:
    several = {"position": 599, "trials": 3, "temperature": 1.0}
    for fields in (several, {"question": "Why?", "answer": "So"}):
        stages = [{"kind": "synthesise"}, {"kind": "sft"}, {"kind": "evaluate", **fields}]
        data = {"name": "x", "stages": stages, "evaluation": {"tasks": 600}}
        assert problems_of(data)[1] == []
