"""Bytes by what they are: blobs by SHA-256, files of runs by run. Ids come in, never paths."""

import hashlib
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, Any

import fsspec
from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import StreamingHttpResponse

SHA256 = re.compile(r"[0-9a-f]{64}")
RUN_ID = re.compile(r"run_[0-9a-z]{16}")
SAFE_PART = re.compile(r"[\w-][\w.-]*", re.ASCII)  # no part is empty, hidden, `.` or `..`
CHUNK = 1 << 20


class WrongHashError(ValueError):
    """The bytes are not those that their name promises."""


def _place() -> tuple[Any, str]:
    return _reached(settings.CARAVAN_STORAGE)


@cache
def _reached(place: str) -> tuple[Any, str]:
    options: dict[str, Any] = {} if "://" in place else {"auto_mkdir": True}
    filesystem, root = fsspec.core.url_to_fs(place, **options)
    return filesystem, root.rstrip("/")


def _blob_path(sha256: str) -> str:
    if not SHA256.fullmatch(sha256):
        raise ValueError(f"{sha256!r} is no SHA-256 in lower-case hex")
    return f"{_place()[1]}/blobs/{sha256[:2]}/{sha256}"


def has_blob(sha256: str) -> bool:
    return bool(_place()[0].exists(_blob_path(sha256)))


def put_blob(data: bytes, sha256: str | None = None) -> str:
    """Store bytes once and return their SHA-256. Raises WrongHashError unless it is `sha256`."""
    actual = hashlib.sha256(data).hexdigest()
    if sha256 not in (None, actual):
        raise WrongHashError(f"the bytes have the SHA-256 {actual}, not {sha256}")
    filesystem, root = _place()
    if has_blob(actual):
        return actual
    partial = f"{root}/blobs/partial/{uuid.uuid4().hex}"
    with filesystem.open(partial, "wb") as file:
        file.write(data)
    target = _blob_path(actual)
    filesystem.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
    filesystem.mv(partial, target)
    return actual


def read_blob(sha256: str, offset: int = 0, length: int | None = None) -> bytes:
    """Bytes of a blob. Raises FileNotFoundError."""
    end = None if length is None else offset + length
    return bytes(_place()[0].cat_file(_blob_path(sha256), start=offset, end=end))


def open_blob(sha256: str) -> IO[bytes]:
    """Raises FileNotFoundError."""
    return _place()[0].open(_blob_path(sha256), "rb")  # type: ignore[no-any-return]


def remove_blob(sha256: str) -> None:
    filesystem = _place()[0]
    if has_blob(sha256):
        filesystem.rm_file(_blob_path(sha256))


def is_safe(path: str) -> bool:
    """Whether a relative path names something below its folder, in plain characters only."""
    return all(SAFE_PART.fullmatch(part) for part in path.split("/"))


def run_folder(run_id: str) -> str:
    """Where a run keeps its files, as the run's own processes reach it."""
    if not RUN_ID.fullmatch(run_id):
        raise ValueError(f"{run_id!r} is no id of a run")
    return f"{settings.CARAVAN_STORAGE.rstrip('/')}/runs/{run_id}"


def open_run_file(run_id: str, path: str) -> tuple[IO[bytes], int]:
    """A file of a run and its size. Raises FileNotFoundError; ValueError for an unsafe path."""
    if not RUN_ID.fullmatch(run_id) or not is_safe(path):
        raise ValueError(f"{path!r} does not name a file of a run")
    filesystem, root = _place()
    where = f"{root}/runs/{run_id}/{path}"
    return filesystem.open(where, "rb"), int(filesystem.size(where))


def write_run_file(run_id: str, path: str, data: bytes) -> None:
    """Leave a file where a run keeps its own. Raises ValueError for an unsafe path."""
    if not RUN_ID.fullmatch(run_id) or not is_safe(path):
        raise ValueError(f"{path!r} does not name a file of a run")
    filesystem, root = _place()
    where = f"{root}/runs/{run_id}/{path}"
    filesystem.makedirs(where.rpartition("/")[0], exist_ok=True)
    filesystem.pipe_file(where, data)


def free_bytes() -> int | None:
    """What is free on the disk; None where the storage is no folder of this machine."""
    filesystem, root = _place()
    is_local = "file" in filesystem.protocol
    return shutil.disk_usage(root).free if is_local and filesystem.exists(root) else None


@contextmanager
def new_run_file(run_id: str, path: str) -> Iterator[IO[bytes]]:
    """A file to write piece by piece where a run keeps its own. What was written of one that is
    given up stays: whoever asked for it removes it. Raises ValueError for an unsafe path."""
    if not RUN_ID.fullmatch(run_id) or not is_safe(path):
        raise ValueError(f"{path!r} does not name a file of a run")
    filesystem, root = _place()
    where = f"{root}/runs/{run_id}/{path}"
    filesystem.makedirs(where.rpartition("/")[0], exist_ok=True)
    with filesystem.open(where, "wb") as file:
        yield file


def remove_run(run_id: str, path: str = "") -> None:
    """Remove a run's files, or one folder of them."""
    if not RUN_ID.fullmatch(run_id) or (path and not is_safe(path)):
        raise ValueError(f"{path!r} does not name a folder of a run")
    filesystem, root = _place()
    where = f"{root}/runs/{run_id}/{path}".rstrip("/")
    if filesystem.exists(where):
        filesystem.rm(where, recursive=True)


def run_usage(run_id: str, folder: str = "") -> dict[str, tuple[int, int]]:
    """(bytes, files) of a run's files by their top folder, or of one folder only.

    Files beside the folders count under "". A folder that does not exist is left out.
    """
    if not RUN_ID.fullmatch(run_id) or (folder and not is_safe(folder)):
        raise ValueError(f"{folder!r} does not name a folder of a run")
    filesystem, root = _place()
    home = f"{root}/runs/{run_id}"
    found: dict[str, tuple[int, int]] = {}
    try:
        files = filesystem.find(f"{home}/{folder}".rstrip("/"), detail=True)
    except FileNotFoundError:
        return {}
    for path, about in files.items():
        inside = str(path).split(f"/runs/{run_id}/", 1)[-1]
        top = inside.split("/", 1)[0] if "/" in inside else ""
        size, count = found.get(top, (0, 0))
        found[top] = (size + int(about["size"] or 0), count + 1)
    return found


async def joined(blobs: list[str]) -> AsyncIterator[bytes]:
    """The bytes of several blobs, one after the other. Raises FileNotFoundError on the way."""
    for sha256 in blobs:
        async for piece in chunks(await sync_to_async(open_blob)(sha256)):
            yield piece


async def chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    """An open file, read in a thread a piece at a time, closed at the end."""
    try:
        while piece := await sync_to_async(file.read)(CHUNK):
            yield piece
    finally:
        await sync_to_async(file.close)()


def attachment(pieces: AsyncIterator[bytes], name: str, size: int) -> StreamingHttpResponse:
    """A download that no browser shows or guesses the type of."""
    response = StreamingHttpResponse(pieces, content_type="application/octet-stream")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Content-Length"] = str(size)
    response["X-Content-Type-Options"] = "nosniff"
    return response
