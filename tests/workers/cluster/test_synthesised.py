"""What synthesis made comes back as it was, and demonstrations in a fixed order."""

import pytest

from engine.spec import load_spec
from engine.synthesis import synthesise
from workers.cluster import synthesised

SPEC = """
name: tiny
environment: {graph: {cities: 50, held_out: 0.3}, max_calls: 3, max_turn_tokens: 32}
stages:
  - {kind: synthesise, tasks: {"1": 60}, demonstrations: {"1": 200}}
evaluation: {tasks: 12, hops: [1], quick_tasks: 10}
model: {vocab_size: 400}
"""


@pytest.fixture(scope="module")
def made():
    spec, problems = load_spec(SPEC)
    assert not problems
    return synthesise(spec)


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthesis")
    synthesised.save(folder, made)
    return folder


def test_tasks_and_tokenizer_come_back(made, folder):
    for name in ("practice", "held_out", "quick"):
        assert synthesised.tasks(folder, name) == getattr(made, name)
    text = made.training[0].prompt
    assert synthesised.tokenizer(folder).encode_text(text) == made.tokenizer.encode_text(text)
    assert "tokenizer.json" in synthesised.tokenizer_files(folder)
    assert synthesised.summary_of(folder)["demonstrations"] == len(made.demonstrations)


def test_a_stage_that_was_not_finished_is_not_there(folder, tmp_path):
    assert synthesised.summary_of(tmp_path) is None
    assert synthesised.summary_of(None) is None


def test_every_demonstration_is_learned_once_an_epoch_token_by_token(made, folder):
    demonstrations = synthesised.Demonstrations(folder, batch_size=8, seed=3)
    in_epoch = len(made.demonstrations) // 8
    seen = [one for step in range(in_epoch) for one in demonstrations.batch(step)]
    assert len({one.id for one in seen}) == in_epoch * 8
    for one in seen:
        (was,) = made.demonstrations[int(one.id)].segments
        (now,) = one.segments
        assert (now.ids, now.loss_mask) == (was.ids, was.loss_mask)


def test_the_order_is_the_seeds_and_continues_at_any_step(folder):
    first = synthesised.Demonstrations(folder, 8, seed=3)
    whole = [[one.id for one in first.batch(step)] for step in range(60)]
    again = synthesised.Demonstrations(folder, 8, seed=3)
    assert [one.id for one in again.batch(57)] == whole[57]
    other = synthesised.Demonstrations(folder, 8, seed=4)
    assert [one.id for one in other.batch(0)] != whole[0]
    epoch = len(whole[0])
    assert whole[:epoch] != whole[epoch : 2 * epoch]


def test_a_batch_is_never_larger_than_what_there_is(folder, made):
    all_of_them = synthesised.Demonstrations(folder, batch_size=10_000, seed=0)
    assert len(all_of_them.batch(0)) == len(made.demonstrations)
    assert len(all_of_them.batch(1)) == len(made.demonstrations)


def test_what_is_held_back_shows_evaluation_tasks_and_is_never_learned(made, folder):
    kept = synthesised.held_back(folder)
    assert [one.segments[0].ids for one in kept] == [one.segments[0].ids for one in made.held_back]
    assert {one.task_id for one in made.held_back} == {task.id for task in made.quick}
    assert not {one.prompt for one in made.held_back} & {one.prompt for one in made.demonstrations}
    assert not any(step.detour for one in made.held_back for step in one.steps)
