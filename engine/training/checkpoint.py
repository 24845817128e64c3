"""Checkpoint folders: complete or absent, every file with its hash, nothing pickled."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.durable import unfinished

META = "caravan.json"


class CheckpointError(Exception):
    """A checkpoint that cannot be used; the message says which file and why."""


def save_checkpoint(
    folder: Path,
    model: Any,
    tensors: Mapping[str, Mapping[str, Tensor]],
    meta: Mapping[str, Any],
    extra_files: Mapping[str, bytes],
) -> dict[str, dict[str, Any]]:
    """Writes everything beside `folder`, then renames; returns name -> {size, sha256}.

    model: a transformers model (config.json, model.safetensors); tensors: file stem -> tensors;
    meta: plain values, stored with the hashes of the other files; extra_files: e.g. the tokenizer.
    """
    work = unfinished(folder)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    model.save_pretrained(work)
    for name in (*tensors, *extra_files):
        (work / name).parent.mkdir(exist_ok=True)
    for stem, named in tensors.items():
        save_file({k: v.contiguous() for k, v in named.items()}, work / f"{stem}.safetensors")
    for name, content in extra_files.items():
        (work / name).write_bytes(content)
    found = sorted(path for path in work.rglob("*") if path.is_file())
    files = {path.relative_to(work).as_posix(): _describe(path) for path in found}
    (work / META).write_text(json.dumps({**meta, "files": files}, indent=1))
    files[META] = _describe(work / META)
    if folder.exists():
        shutil.rmtree(folder)
    work.rename(folder)
    return files


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """The meta data, after every file was found whole. Raises CheckpointError."""
    try:
        meta: dict[str, Any] = json.loads((folder / META).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} is not a complete checkpoint: {error}") from error
    for name, expected in meta["files"].items():
        path = folder / name
        if not path.is_file() or _describe(path) != expected:
            raise CheckpointError(f"{path} is missing or differs from its recorded hash.")
    return meta


def read_tensors(folder: Path, stem: str) -> dict[str, Tensor]:
    """What `save_checkpoint` was given under this stem, as it is: `read_checkpoint` checks."""
    return load_file(folder / f"{stem}.safetensors")


def _describe(path: Path) -> dict[str, Any]:
    return {
        "size": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
