"""Two policies compared on the tasks that both played."""

from dataclasses import replace

import pytest

from engine.evaluation.comparison import Comparison
from engine.evaluation.comparison import compare as compare_trials
from engine.evaluation.outcomes import Outcome
from engine.evaluation.trials import trials
from tests.engine.evaluation.samples import SOLVED, outcomes


def compare(before: list[Outcome], after: list[Outcome]) -> Comparison:
    return compare_trials(trials(before), trials(after))


def test_the_gain_is_paired_by_task_whatever_their_order() -> None:
    before = outcomes(True, False, False, False)
    found = compare(before, list(reversed(outcomes(True, True, True, False))))
    assert (found.before, found.after, found.gain.value) == (0.25, 0.75, 0.5)
    assert found.gain.lower <= 0.5 <= found.gain.upper
    assert found.p == pytest.approx(2 * 1 / 4)
    assert [flip.task_id for flip in found.gained] == ["t1", "t2"]
    assert found.lost == []


def test_only_common_tasks_count_and_the_others_are_told() -> None:
    alone = replace(SOLVED, task_id="alone")
    broken = replace(SOLVED, task_id="t0", valid=False)
    found = compare([*outcomes(True, False)[1:], broken, alone], outcomes(False, False))
    assert (found.tasks, found.left_out, found.gain.value) == (1, 2, 0.0)
    with pytest.raises(ValueError, match="no task in common"):
        compare([alone], outcomes(True))


def test_with_several_trials_a_flip_names_a_trial_that_shows_it() -> None:
    before = [*outcomes(False), *outcomes(True, trial=1)]
    after = [*outcomes(False), *outcomes(False, trial=1)]
    found = compare(before, after)
    assert found.p is None, "McNemar's test is of single trials"
    (flip,) = found.lost
    assert (flip.before, flip.after) == (0.5, 0.0)
    assert (flip.before_trajectory, flip.after_trajectory) == ("x0-1", "x0-0")
