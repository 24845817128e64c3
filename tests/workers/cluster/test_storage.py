"""Run storage is the same to its users on a folder and on an object store."""

from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from engine.pool.state import Admitted, Committed, Leased
from engine.pool.wal import FolderStore, Wal
from tests.engine.pool.samples import group
from workers.cluster.storage import RunStorage


class Bucket(MemoryFileSystem):
    """Without folders, as object stores are: where nothing lies there is nothing to list."""

    protocol = "bucket"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        pass


fsspec.register_implementation("bucket", Bucket)


@pytest.fixture(
    params=["{path}", "file://{path}", "local://{path}", "memory:/{path}", "bucket:/{path}"]
)
def place(request, tmp_path):
    return request.param.format(path=tmp_path / "run")


def test_what_one_machine_publishes_another_fetches(place):
    writer, reader = RunStorage(place), RunStorage(place)
    folder = writer.path("checkpoints/one")
    folder.mkdir()
    (folder / "model.bin").write_bytes(b"weights")
    writer.publish("checkpoints/one")
    found = reader.fetch("checkpoints/one")
    assert found is not None
    assert (found / "model.bin").read_bytes() == b"weights"
    assert reader.fetch("checkpoints/two") is None


def test_what_is_borrowed_stays_where_it_was_published_and_nowhere_else(place):
    writer, reader = RunStorage(place), RunStorage(place)
    writer.path("checkpoints/one").mkdir()
    (writer.path("checkpoints/one") / "model.bin").write_bytes(b"weights")
    writer.publish("checkpoints/one")
    for _ in range(2):
        with reader.borrow("checkpoints/one") as folder:
            assert (folder / "model.bin").read_bytes() == b"weights"
    assert folder.exists() == (folder == writer.folder / "checkpoints/one")
    with (
        pytest.raises(FileNotFoundError, match="checkpoints/two is not"),
        reader.borrow("checkpoints/two"),
    ):
        pass


def test_json_is_replaced_whole(place):
    storage = RunStorage(place)
    storage.write_json("latest.json", {"step": 1})
    storage.write_json("latest.json", {"step": 2})
    assert RunStorage(place).fetch("latest.json").read_text() == '{"step": 2}'


def test_a_place_is_empty_until_something_is_published(place):
    storage = RunStorage(place)
    assert storage.is_empty()
    assert storage.store("pool/stage-1").names() == []
    storage.write_json("format.json", {})
    assert not RunStorage(place).is_empty()


def test_what_a_crash_left_half_written_is_no_object(tmp_path):
    store = FolderStore(tmp_path)
    store.put("000001.000000000001.wal", b"")
    for left in (".000001.000000000002.wal.partial", "000001.000000000002.wal.partial", ".nfs01"):
        (tmp_path / left).touch()
    assert store.names() == ["000001.000000000001.wal"]


def test_the_pools_log_lives_on_either(place):
    wal = Wal(RunStorage(place).store("pool/stage-1"), 1)
    wal.append(Admitted(group(1)), Admitted(group(2)))
    wal.append(Leased(1, (1,)))
    wal.append(Committed(1))
    again = Wal(RunStorage(place).store("pool/stage-1"), 2)
    state = again.recover(1)
    assert (list(state.waiting), state.consumed) == ([2], 1)
    again.compact(state)
    assert list(Wal(RunStorage(place).store("pool/stage-1"), 3).recover(1).waiting) == [2]
