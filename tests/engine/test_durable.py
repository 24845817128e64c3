"""What is durable was flushed before its name was, and what leads to it as well."""

import os
from pathlib import Path

import pytest

from engine.durable import sync_tree, write_whole

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks /proc")


@pytest.fixture
def done(monkeypatch) -> list[str]:
    """What was flushed and what was renamed, by name, in order."""
    told: list[str] = []
    replace = Path.replace

    def fsync(descriptor: int) -> None:
        told.append(f"flush {Path(f'/proc/self/fd/{descriptor}').readlink().name}")

    def renamed(path: Path, target: Path) -> Path:
        told.append(f"rename {Path(target).name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", renamed)
    return told


def test_a_file_is_flushed_before_it_has_its_name_and_its_folder_after(tmp_path, done):
    (tmp_path / "folder").mkdir()
    write_whole(tmp_path / "folder" / "latest.json", b"new")
    assert done == ["flush .latest.json.partial", "rename latest.json", "flush folder"]
    assert (tmp_path / "folder" / "latest.json").read_bytes() == b"new"


def test_a_tree_is_flushed_with_all_that_leads_there(tmp_path, done):
    deep = tmp_path / "run" / "checkpoints" / "attempt-1" / "step-2"
    (deep / "adapter").mkdir(parents=True)
    (deep / "model").touch()
    (deep / "adapter" / "weights").touch()
    sync_tree(deep, tmp_path / "run")
    names = [one.removeprefix("flush ") for one in done]
    assert set(names[:3]) == {"model", "adapter", "weights"}
    assert names[3:] == ["step-2", "attempt-1", "checkpoints", "run"]
