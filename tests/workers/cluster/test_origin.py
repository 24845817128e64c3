"""What a run that starts from another run's checkpoint copies, once, before it begins."""

import shutil

import pytest

from workers.cluster.attempt import Position
from workers.cluster.origin import OriginError, take_origin
from workers.cluster.run_format import OtherCodeError, check_format
from workers.cluster.storage import RunStorage

PATH = "checkpoints/attempt-1/stage-1-step-000005"


@pytest.fixture
def told(tmp_path):
    parent = RunStorage(str(tmp_path / "parent"))
    check_format(parent, "code")
    for name in (f"{PATH}/model.safetensors", "synthesis/tasks", "synthesis/done.json"):
        parent.path(name).write_text(name)
    return {
        "id": "ckpt_1", "run_id": "run_1", "storage": parent.place, "checkpoint_path": PATH,
        "stage": 1, "step": 5, "version": 5,
    }  # fmt: skip


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_it_is_copied_once_and_needs_the_other_run_no_more(told, tmp_path, scheme):
    storage = RunStorage(f"{scheme}{tmp_path}/fork")
    position = take_origin({**told, "storage": scheme + told["storage"]}, storage)
    assert position == Position(1, 5, 5, "origin/checkpoint")
    shutil.rmtree(told["storage"])
    again = RunStorage(f"{scheme}{tmp_path}/fork")
    assert take_origin(told, again) == position
    assert take_origin(None, again) == position, "the checkpoint's row may be gone, too"
    model = again.fetch(position.path) / "model.safetensors"
    assert model.read_text() == f"{PATH}/model.safetensors"
    assert (again.fetch("synthesis") / "done.json").exists()


def test_a_run_of_its_own_has_none(tmp_path):
    assert take_origin(None, RunStorage(str(tmp_path))) is None


def test_what_was_cut_short_is_copied_again(told, tmp_path):
    storage = RunStorage(str(tmp_path / "fork"))
    storage.path("synthesis/half").write_text("")
    take_origin(told, storage)
    assert not storage.path("synthesis/half").exists()


@pytest.mark.parametrize("name", ["synthesis", PATH])
def test_data_that_is_gone_is_told_with_a_sentence(told, tmp_path, name):
    shutil.rmtree(f"{told['storage']}/{name}")
    with pytest.raises(OriginError, match=rf"ckpt_1 of run run_1, and {name} is not on that run"):
        take_origin(told, RunStorage(str(tmp_path / "fork")))


def test_files_of_another_format_are_not_copied(told, tmp_path):
    RunStorage(told["storage"]).write_json("format.json", {"format": 0})
    with pytest.raises(OtherCodeError, match="run run_1, from which this one starts"):
        take_origin(told, RunStorage(str(tmp_path / "fork")))
