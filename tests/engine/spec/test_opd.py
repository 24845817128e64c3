"""The stage of distillation: presets, and the fields that are refused together."""

import pytest

from engine.spec import OpdStage, problems_of
from engine.spec.lineage import needed_by
from engine.spec.opd import Distillation, category_disagreements

TEACHERS = [{"stage": 2, "categories": ["3 hops"]}, {"stage": 3, "categories": ["4 hops"]}]
STAGES = [
    {"kind": "synthesise"},
    {"kind": "sft"},
    {"kind": "rl", "hops": [3]},
    {"kind": "rl", "hops": [4], "start_from": 1},
]


def given(**fields):
    stage = {"kind": "opd", "start_from": 1, "teachers": TEACHERS, **fields}
    return problems_of({"name": "distil", "stages": [*STAGES, stage]})


def test_several_experts_teach_one_student():
    spec, problems = given()
    assert spec is not None, problems
    assert needed_by(spec.stages, 2) == [4] and needed_by(spec.stages, 1) == [2, 3, 4]


def test_its_presets_are_reverse_kl_on_own_samples_and_gkd():
    spec, _ = given()
    (stage,) = [one for one in spec.stages if isinstance(one, OpdStage)]
    assert stage.resolved() == Distillation(beta=1.0, off_policy_share=0.0)
    assert stage.weights == (0.5, 5.0)
    gkd = stage.model_copy(update={"algorithm": "gkd"})
    assert gkd.resolved() == Distillation(beta=0.5, off_policy_share=0.5)
    mine = gkd.model_copy(update={"beta": 0.0, "off_policy_share": 0.0, "weight_max": 3.0})
    assert mine.resolved() == Distillation(0.0, 0.0) and mine.weights == (0.5, 3.0)


def test_a_group_of_one_teaches_where_no_reward_does():
    assert given(group_size=1)[0] is not None
    _, problems = given(group_size=1, reward_weight=0.5)
    assert {p.path for p in problems} == {"stages.4.reward_weight", "stages.4.group_size"}


@pytest.mark.parametrize(
    ("fields", "paths", "said"),
    [
        ({"teachers": [{"stage": 4}]}, ["teachers.0.stage"], "learn from its own final weights"),
        ({"teachers": [{"stage": 0}]}, ["teachers.0.stage"], "is synthesise, which trains no"),
        ({"teachers": [{"stage": 7}]}, ["teachers.0.stage"], "There is no stage 7"),
        ({"teachers": []}, ["teachers"], "at least 1 item"),
        ({"teachers": [{"stage": 2}, {"stage": 2}]}, ["teachers.1.stage"], "a teacher twice"),
        ({"hops": [3]}, ["teachers.1.categories", "hops"], "the stage makes tasks of 3 hops only"),
        ({"teachers": TEACHERS[:1]}, ["teachers", "hops"], "Nobody teaches tasks of 4 hops"),
        ({"form": "one_token", "beta": 0.5}, ["beta", "form"], "no divergence of beta 0.5"),
        (
            {"form": "one_token", "algorithm": "gkd", "off_policy_share": 0.0},
            ["algorithm", "form"],
            "no divergence of beta 0.5",
        ),
        (
            {"form": "one_token", "off_policy_share": 0.2},
            ["off_policy_share", "form"],
            "which it did not in demonstrations",
        ),
        ({"weight_max": 3.0}, ["weight_max", "form"], "weight_max is not read"),
        (
            {"form": "one_token", "weight_min": 6.0},
            ["weight_min", "weight_max"],
            "No importance weight lies between 6 and 5",
        ),
        ({"beta": 1.5}, ["beta"], "less than or equal to 1"),
        ({"group_size": 500}, ["group_size", "rollout.slots"], "must fit into one worker"),
    ],
)
def test_it_refuses_what_cannot_be_honoured(fields, paths, said):
    spec, problems = given(**fields)
    assert spec is None
    expected = {one if one.startswith("rollout") else f"stages.4.{one}" for one in paths}
    assert {problem.path for problem in problems} == expected
    assert all(said in problem.message for problem in problems), problems


def test_demonstrations_must_be_of_the_stages_own_tasks():
    shown = {"kind": "synthesise", "tasks": {"1": 9, "3": 9, "4": 9}, "demonstrations": {"1": 9}}
    stage = {"kind": "opd", "start_from": 1, "teachers": TEACHERS, "algorithm": "gkd"}
    _, problems = problems_of({"name": "distil", "stages": [shown, *STAGES[1:], stage]})
    paths = {"stages.4.algorithm", "stages.4.hops", "stages.0.demonstrations"}
    assert {problem.path for problem in problems} == paths


VERSION = "ver_0123456789abcdef"


def test_tasks_of_a_dataset_have_categories_that_the_spec_does_not_know():
    spec, problems = given(dataset=VERSION, teachers=[{"stage": 2, "categories": ["city"]}])
    assert spec is not None, problems
    (stage,) = [one for one in spec.stages if isinstance(one, OpdStage)]
    assert not stage.draws_tasks()
    assert list(category_disagreements(stage, ["city"], "stages.4")) == []
    strange, untaught = category_disagreements(stage, ["none", "river"], "stages.4")
    assert strange.message == (
        "This teacher teaches city; its dataset has tasks of none and river only."
    )
    assert strange.paths == ("stages.4.teachers.0.categories", "stages.4.dataset")
    assert untaught.message.startswith("Nobody teaches tasks of none and river: give them a ")
    assert untaught.paths == ("stages.4.teachers", "stages.4.dataset")


@pytest.mark.parametrize(
    ("fields", "paths", "said"),
    [
        ({"hops": [3]}, ["hops", "dataset"], "does not read hops"),
        ({"algorithm": "gkd"}, ["algorithm", "dataset"], "those of a dataset have none"),
        ({"off_policy_share": 0.1}, ["off_policy_share", "dataset"], "A share of 0.1"),
        ({"dataset": "the newest"}, ["dataset"], "should match pattern"),
    ],
)
def test_it_refuses_what_tasks_of_a_dataset_do_not_have(fields, paths, said):
    spec, problems = given(**{"dataset": VERSION, **fields})
    assert spec is None
    assert {problem.path for problem in problems} == {f"stages.4.{one}" for one in paths}
    assert all(said in problem.message for problem in problems), problems
    assert given(dataset=VERSION, algorithm="gkd", off_policy_share=0.0)[0] is not None


def test_the_run_is_not_judged_by_the_tasks_that_a_student_is_taught_on():
    stages = [*STAGES, {"kind": "opd", "teachers": [{"stage": 2}], "dataset": VERSION}]
    _, problems = problems_of(
        {"name": "distil", "stages": stages, "evaluation": {"dataset": VERSION}}
    )
    assert {one.path for one in problems} == {"stages.4.dataset", "evaluation.dataset"}
