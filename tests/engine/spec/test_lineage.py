"""Which stage begins where, and what is refused."""

import pytest

from engine.spec import RlStage, SftStage, SynthesiseStage, problems_of
from engine.spec.lineage import ancestors, needed_by, parent_of

STAGES = [
    SynthesiseStage(),
    SftStage(),
    RlStage(hops=[3]),
    RlStage(hops=[4], start_from=1),
    RlStage(start_from=2),
    RlStage(),
]


def test_a_stage_begins_with_the_training_stage_before_it_unless_it_says_another():
    assert [parent_of(STAGES, at) for at in range(6)] == [None, None, 1, 1, 2, 4]


def test_a_line_ends_at_the_weights_as_they_were_made():
    assert ancestors(STAGES, 5) == [4, 2, 1]
    assert ancestors(STAGES, 3) == [1]
    assert ancestors(STAGES, 1) == []


def test_it_knows_who_needs_a_stages_final_weights():
    assert [needed_by(STAGES, at) for at in range(6)] == [[], [2, 3], [4], [], [5], []]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (0, "Stage 0 is synthesise, which trains no weights; there is stage 1."),
        (2, "Stage 2 cannot begin with its own final weights; there is stage 1."),
        (3, "Stage 3 comes after stage 2, which would begin with its final weights"),
        (9, "There is no stage 9; the last one is 3; there is stage 1."),
    ],
)
def test_it_refuses_to_begin_where_no_weights_are(source, said):
    stages = [{"kind": "synthesise"}, {"kind": "sft"}, {"kind": "rl", "start_from": source}]
    found, problems = problems_of({"name": "line", "stages": [*stages, {"kind": "rl"}]})
    assert found is None
    assert [problem.path for problem in problems] == ["stages.2.start_from"]
    assert said in problems[0].message


def test_the_first_training_stage_can_begin_nowhere_else():
    stages = [{"kind": "synthesise"}, {"kind": "sft", "start_from": 0}]
    (problem,) = problems_of({"name": "line", "stages": stages})[1]
    assert "there is nothing: leave it empty" in problem.message
