"""Where an attempt goes on."""

from dataclasses import asdict

from workers.cluster.attempt import Position, _latest_file, newest_position
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
