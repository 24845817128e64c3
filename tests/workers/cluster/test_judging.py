"""Which evaluations an attempt makes, and how they are compared between its stages."""

from dataclasses import asdict

import pytest

from engine.spec import EvaluateStage, ExperimentSpec, RlStage, SftStage, SynthesiseStage
from engine.spec.dry_run import JUDGED
from tests.engine.evaluation.samples import outcomes
from workers.cluster import judging
from workers.cluster.attempt import Attempt, Position, final_file
from workers.cluster.storage import RunStorage


def attempt_of(storage, stages):
    spec = ExperimentSpec(name="line", stages=[SynthesiseStage(), *stages])
    return Attempt(spec, 2, None, storage, None, None, None)


def test_the_gain_is_within_the_line_of_the_last_stage(tmp_path):
    storage = RunStorage(str(tmp_path))
    stages = [
        SftStage(steps=3),
        RlStage(steps=4),
        SftStage(steps=5, start_from=1),
        RlStage(steps=6, start_from=3),
    ]
    solved = {1: 1, 2: 9, 3: 4, 4: 8}
    ended = {1: 3, 2: 4, 3: 5, 4: 2}  # the last one before its sixth step: it was good enough
    for index, count in solved.items():
        played = outcomes(*(task < count for task in range(10)))
        name = judging.outcomes_file(1, "held_out", index, ended[index])
        storage.write_json(name, {"outcomes": [one.to_dict() for one in played]})
        final = Position(index, ended[index], version=0, path="")
        storage.write_json(final_file(1, index), asdict(final))
    gain = judging.gain(attempt_of(storage, stages))
    assert gain["gain"] == pytest.approx(0.7)
    assert (gain["gain_from_stage"], gain["gain_to_stage"]) == (1, 4)
    assert judging.gain(attempt_of(storage, stages[:1])) == {}


def test_a_stage_that_judges_has_series_of_its_own_where_the_run_trains_too(tmp_path):
    stage = EvaluateStage(tasks="quick", hops=[3], number=20, trials=4, temperature=1.0)
    storage = RunStorage(str(tmp_path))
    plan = judging.plan_of(attempt_of(storage, [SftStage(), stage]), 2, stage)
    assert (plan.tasks, plan.hops, plan.number) == ("quick", (3,), 20)
    assert (plan.trials, plan.temperature, plan.prefix) == (4, 1.0, "evaluate/")
    assert judging.plan_of(attempt_of(storage, [stage]), 1, stage).prefix == "eval/"


def test_a_stage_names_the_one_task_that_it_plays(tmp_path):
    storage = RunStorage(str(tmp_path))
    numbered = EvaluateStage(position=3)
    plan = judging.plan_of(attempt_of(storage, [numbered]), 1, numbered)
    assert (plan.position, plan.own) == (3, None)
    asked = EvaluateStage(question="Where?", answer="Here")
    plan = judging.plan_of(attempt_of(storage, [asked]), 1, asked)
    assert (plan.position, plan.own) == (None, ("Where?", "Here"))


@pytest.mark.parametrize(("asked", "played"), [(None, JUDGED), (4, 4), (50, JUDGED)])
def test_a_dry_run_plays_a_few_of_the_tasks_that_a_fork_has_of_its_parent(tmp_path, asked, played):
    stage = EvaluateStage(number=asked)
    attempt = attempt_of(RunStorage(str(tmp_path)), [SftStage(), stage])
    assert judging.plan_of(attempt, 2, stage).number == asked
    assert judging.scheduled(attempt, "quick").number is None
    attempt.rehearses = True
    assert judging.plan_of(attempt, 2, stage).number == played
    assert judging.scheduled(attempt, "quick").number == JUDGED
