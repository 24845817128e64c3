"""Files that are there after a power cut, whole or not at all: more than `kill -9` asks for."""

import os
import shutil
import time
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file at once; durable on return, with its name."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync(path.parent)


def sync_tree(path: Path, below: Path) -> None:
    """Make a file, or a folder with all in it, durable, and the names of the folders that lead
    there from `below`."""
    for one in path.rglob("*") if path.is_dir() else ():
        _sync(one)
    for one in (path, *path.parents):
        _sync(one)
        if one == below:
            return


def unfinished(folder: Path) -> Path:
    """Where a folder is written before it is renamed to its place."""
    return folder.with_name(f".{folder.name}.writing")


def remove_unfinished(parent: Path, quiet_s: float) -> None:
    """Remove the folders in here that a writer left unfinished. One with a file that was changed
    within `quiet_s` seconds stays: its writer may be alive."""
    for work in parent.glob(".*.writing"):
        try:
            changed = max(path.stat().st_mtime for path in (work, *work.rglob("*")))
        except OSError:  # it is being renamed
            continue
        if time.time() - changed >= quiet_s:
            shutil.rmtree(work, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
