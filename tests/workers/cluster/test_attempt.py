"""Where an attempt goes on."""

import os
import time
from dataclasses import asdict

import pytest

from engine.spec import EvaluateStage, ExperimentSpec, RlStage, SftStage, SynthesiseStage
from workers.cluster import limits
from workers.cluster.attempt import (
    Attempt,
    Position,
    _latest_file,
    final_file,
    newest_position,
)
from workers.cluster.storage import RunStorage

TOLD = Position(1, 10, 10, "checkpoints/attempt-1/stage-1-step-000010")


def test_storage_knows_of_a_checkpoint_that_the_control_plane_has_not_heard_of(tmp_path):
    storage = RunStorage(str(tmp_path))
    saved = Position(2, 5, 305, "checkpoints/attempt-1/stage-2-step-000005")
    storage.write_json(_latest_file(1), asdict(saved))
    assert newest_position(2, TOLD, storage) == saved
    assert newest_position(5, None, storage) == saved, "attempts between may have saved nothing"


def test_an_older_attempt_that_still_runs_moves_nothing(tmp_path):
    storage = RunStorage(str(tmp_path))
    second = Position(2, 6, 310, "checkpoints/attempt-2/stage-2-step-000006")
    zombie = Position(2, 50, 350, "checkpoints/attempt-1/stage-2-step-000050")
    storage.write_json(_latest_file(2), asdict(second))
    storage.write_json(_latest_file(1), asdict(zombie))
    assert newest_position(3, TOLD, storage) == second


def test_without_a_word_on_storage_it_is_as_it_was_told(tmp_path):
    storage = RunStorage(str(tmp_path))
    assert newest_position(2, TOLD, storage) == TOLD
    assert newest_position(1, None, storage) is None


def attempt_of(storage, number, stages):
    spec = ExperimentSpec(name="line", stages=[SynthesiseStage(), *stages])
    return Attempt(spec, number, None, storage, None, None, None)


def test_a_stage_begins_with_the_final_checkpoint_of_its_parent_over_all_attempts(tmp_path):
    storage = RunStorage(str(tmp_path))
    cold = Position(1, 300, 300, "checkpoints/attempt-1/stage-1-step-000300")
    zombie = Position(2, 70, 377, "checkpoints/attempt-1/stage-2-step-000070")
    expert = Position(2, 70, 377, "checkpoints/attempt-2/stage-2-step-000070")
    for number, position in ((1, cold), (1, zombie), (2, expert)):
        storage.write_json(final_file(number, position.stage), asdict(position))
    attempt = attempt_of(storage, 3, [SftStage(), RlStage(), RlStage(start_from=1), RlStage()])
    assert attempt.parent(1) is None
    assert (attempt.parent(2), attempt.parent(3)) == (cold, cold)
    assert attempt.final(2) == expert, "the newest attempt that finished it"
    with pytest.raises(FileNotFoundError, match=r"Stage 3 \(rl\) left no final checkpoint"):
        attempt.parent(4)


def test_the_first_training_stage_of_a_fork_begins_with_the_checkpoint_of_the_other_run(tmp_path):
    storage = RunStorage(str(tmp_path))
    origin = Position(2, 70, 370, "origin/checkpoint")
    trained = Position(1, 5, 5, "checkpoints/attempt-1/stage-1-step-000005")
    storage.write_json(final_file(1, 1), asdict(trained))
    attempt = attempt_of(storage, 1, [RlStage(), EvaluateStage()])
    attempt.origin = origin
    assert (attempt.parent(1), attempt.parent(2)) == (origin, trained)
    only_judging = attempt_of(storage, 1, [EvaluateStage()])
    only_judging.origin = origin
    assert only_judging.parent(1) == origin


def test_checkpoints_that_dead_attempts_left_unfinished_are_removed_and_no_others(tmp_path):
    storage = RunStorage(str(tmp_path))
    long_ago = time.time() - 2 * limits.SAVE_S
    folders = {
        name: storage.path(f"checkpoints/{name}")
        for name in (
            "attempt-1/.stage-1-step-000010.writing",
            "attempt-1/stage-1-step-000005",
            "attempt-2/.stage-1-step-000020.writing",  # written until a moment ago
            "attempt-3/.stage-1-step-000030.writing",  # its own
            "attempt-4/.stage-1-step-000040.writing",
        )
    }
    for name, folder in folders.items():
        (folder / "part").mkdir(parents=True)
        (weights := folder / "part/model.safetensors").write_bytes(b"weights")
        for path in (weights, weights.parent, folder):
            os.utime(path, (long_ago, long_ago))
        if name.startswith("attempt-2"):
            os.utime(weights)
    attempt_of(storage, 3, []).clean()
    left = {name for name, folder in folders.items() if folder.exists()}
    assert left == folders.keys() - {"attempt-1/.stage-1-step-000010.writing"}
