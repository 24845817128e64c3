"""What a stage that is taken up again owes of what the attempt before it had begun."""

import pytest

from engine.spec import ExperimentSpec, RlStage, SynthesiseStage
from workers.cluster import judging, stages
from workers.cluster.attempt import Attempt
from workers.cluster.storage import RunStorage

STAGE = RlStage(steps=30)


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
