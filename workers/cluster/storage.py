"""A run's storage: a folder that all its machines see, or any place that fsspec reaches.

Where it is remote, files are written to a local folder first and uploaded whole. Names travel
between machines, never paths: each process makes its own RunStorage of the same place.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from engine.durable import sync_tree, write_whole
from engine.pool.wal import FolderStore, Store


class RunStorage:
    def __init__(self, place: str) -> None:
        """`place`: a path, or an fsspec URL such as s3://bucket/runs/run_x."""
        self.place = place.rstrip("/")
        self._remote: Any = None
        if "://" in place and not place.startswith("file://"):
            self._remote, self._root = fsspec.core.url_to_fs(self.place)
            self._local = tempfile.TemporaryDirectory(prefix="caravan-run-")
            self.folder = Path(self._local.name)
        else:
            self.folder = Path(self.place.removeprefix("file://"))
            self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Where a file or folder of the run lies, or shall be written, on this machine."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def is_empty(self) -> bool:
        """Whether nothing of the run was ever published here."""
        if self._remote is None:
            return not any(self.folder.iterdir())
        return not self._remote.exists(self._root) or not self._remote.ls(self._root, refresh=True)

    def publish(self, name: str) -> None:
        """Make a file or folder that was written to `path(name)` last, through a power cut too.
        Remote storage has it then instead of this machine."""
        path = self.folder / name
        if self._remote is None:
            sync_tree(path, self.folder)
            return
        # File by file: what copying a folder onto one that exists means differs between systems.
        # In the order of writing: what was written last says that the rest is there.
        files = [one for one in path.rglob("*") if one.is_file()] or [path]
        for file in sorted(files, key=lambda one: one.stat().st_mtime_ns):
            target = f"{self._root}/{file.relative_to(self.folder)}"
            self._remote.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._remote.put_file(str(file), target)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    def fetch(self, name: str) -> Path | None:
        """A file or folder that was published, on this machine; None where there is none."""
        path = self.folder / name
        if path.exists() or self._remote is None:
            return path if path.exists() else None
        for source in self._remote.find(f"{self._root}/{name}"):
            target = self.folder / str(source).removeprefix(f"{self._root}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._remote.get_file(source, str(target))
        return path if path.exists() else None

    @contextmanager
    def borrow(self, name: str) -> Iterator[Path]:
        """A file or folder as long as it is needed: a copy of remote storage's is removed then.

        Raises FileNotFoundError where there is none.
        """
        path = self.fetch(name)
        if path is None:
            raise FileNotFoundError(f"{name} is not on the run's storage any more.")
        try:
            yield path
        finally:
            if self._remote is not None:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def write_json(self, name: str, data: Any) -> None:
        write_whole(self.path(name), json.dumps(data, allow_nan=False).encode())
        self.publish(name)

    def store(self, name: str) -> Store:
        """A place for whole, durable objects."""
        if self._remote is None:
            return FolderStore(self.folder / name)
        return RemoteStore(self._remote, f"{self._root}/{name}")


class RemoteStore:
    """Objects in a folder of an object store, whose writes are whole and durable or fail."""

    def __init__(self, filesystem: Any, folder: str) -> None:
        self._filesystem = filesystem
        self._folder = folder
        filesystem.makedirs(folder, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        self._filesystem.pipe_file(f"{self._folder}/{name}", data)

    def get(self, name: str) -> bytes:
        return bytes(self._filesystem.cat_file(f"{self._folder}/{name}"))

    def names(self) -> list[str]:
        try:
            found = self._filesystem.ls(self._folder, detail=False, refresh=True)
        except FileNotFoundError:  # an object store has no empty folders
            return []
        return [str(path).rsplit("/", 1)[1] for path in found]

    def remove(self, name: str) -> None:
        self._filesystem.rm_file(f"{self._folder}/{name}")
