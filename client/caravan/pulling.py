"""Checkpoints and datasets as local files: whole and as their hashes say, or not there at all."""

import hashlib
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

from caravan.client import Client
from caravan.errors import AccessError, RefusedError

CHUNK = 1 << 20
SAFE_PART = re.compile(r"[\w-][\w.-]*", re.ASCII)  # no part is empty, hidden, `.` or `..`
Progress = Callable[[str, int, int], None]  # (file, bytes so far, bytes in all)


def quiet(name: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def choose_checkpoint(client: Client, run: str, wanted: str = "") -> dict[str, Any]:
    """The run's checkpoint with this id; by default the final one, else the newest that is there.

    Raises RefusedError where there is none.
    """
    found = client.checkpoints(run)
    if wanted:
        found = [one for one in found if one["id"] == wanted]
        if not found:
            raise RefusedError(f"Run {run} has no checkpoint {wanted!r}.")
    there = [one for one in found if one["removed_at"] is None]
    if not there:
        reason = "its files were removed" if found else "it has saved none yet"
        raise RefusedError(f"There is no checkpoint of run {run} to take: {reason}.")
    return next((one for one in there if one["final"]), there[0])


def pull_checkpoint(
    client: Client, checkpoint: dict[str, Any], folder: Path, progress: Progress = quiet
) -> int:
    """Download every file of a checkpoint into a folder; how many bytes came.

    Files that are there already, with the right hash, are kept: a pull that was cut short goes on.
    Raises AccessError where a file does not arrive as its manifest says, RefusedError where the
    folder holds another file of that name or the disk is too small.
    """
    files: dict[str, dict[str, Any]] = checkpoint["files"]
    for name in files:
        if not all(SAFE_PART.fullmatch(part) for part in name.split("/")):
            raise AccessError(f"The manifest names a file {name!r}, which is no safe name.")
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in sorted(files) if not _is_there(folder / name, files[name])]
    _check_space(folder, sum(int(files[name]["size"]) for name in missing))
    pulled = 0
    for name in missing:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pulled += _pull(client, checkpoint["id"], name, files[name], folder / name, progress)
    return pulled


def find_version(
    client: Client, dataset: str, number: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A dataset by id or name, and its version with this number, or its newest one.

    Raises RefusedError where there is no such version.
    """
    found = client.dataset(dataset)
    for version in found["versions"]:
        if number in (None, version["number"]):
            return found, version
    which = "no version yet" if number is None else f"no version {number}"
    raise RefusedError(f"Dataset {found['name']!r} has {which}.")


def pull_dataset(client: Client, dataset_id: str, number: int, file: Path) -> None:
    """Download a version as JSON lines. Raises AccessError where it arrives damaged."""
    partial = file.with_name(f".{file.name}.partial")
    try:
        with client.dataset_file(dataset_id, number) as answer, partial.open("wb") as out:
            pieces: Any = _Pieces(answer.iter_bytes())  # a file in all but its declared type
            reader = zstandard.ZstdDecompressor().stream_reader(pieces, read_across_frames=True)
            shutil.copyfileobj(reader, out, CHUNK)
        partial.replace(file)
    except zstandard.ZstdError as error:
        raise AccessError(f"Version {number} arrived damaged: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


class _Pieces(io.RawIOBase):
    """An iterator of bytes as a file to read from."""

    def __init__(self, pieces: Any) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _is_there(path: Path, manifest: dict[str, Any]) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() == manifest["sha256"]:
            return True
    raise RefusedError(f"{path} is another file already: choose an empty folder.")


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RefusedError(
            f"{folder} needs {needed / 1e6:,.0f} MB of disk, and {free / 1e6:,.0f} are free."
        )


def _pull(
    client: Client,
    checkpoint: str,
    name: str,
    manifest: dict[str, Any],
    path: Path,
    progress: Progress,
) -> int:
    partial = path.with_name(f".{path.name}.partial")
    sha256, size, total = hashlib.sha256(), 0, int(manifest["size"])
    progress(name, 0, total)
    try:
        with client.checkpoint_file(checkpoint, name) as answer, partial.open("wb") as out:
            for piece in answer.iter_bytes(CHUNK):
                sha256.update(piece)
                out.write(piece)
                size += len(piece)
                progress(name, size, total)
        if sha256.hexdigest() != manifest["sha256"]:
            raise AccessError(
                f"{name} arrived with {size:,} bytes of another hash than its manifest's: "
                "pull again; if that does not help, the file on the run's storage is damaged."
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return size
