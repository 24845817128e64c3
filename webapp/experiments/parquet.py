"""Parquet as JSON lines: what a dataset stores is the same, whatever file it came from."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from webapp.problems import RefusedError

MAGIC = b"PAR1"
READER = "webapp.experiments.parquet_reader"


@dataclass(frozen=True)
class BadRow:
    """A row that JSON has no words for."""

    message: str


def is_parquet(file: IO[bytes]) -> bool:
    """By its first bytes, whatever its name says; the file is at its start afterwards."""
    start = file.read(len(MAGIC))
    file.seek(0)
    return start == MAGIC


def rows_of_parquet(file: Any) -> Iterator[bytes | BadRow]:
    """Each row of an uploaded file as a JSON object. Raises RefusedError for the file as a whole.

    Another process reads it, without our secrets: what breaks it breaks nothing here.
    """
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with _on_disk(file) as given:
        reader = subprocess.Popen(
            [sys.executable, "-m", READER],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert reader.stdout is not None
        try:
            for line in reader.stdout:
                kind, rest = line[:1], line[1:].rstrip(b"\n")
                if kind == b"!":
                    raise RefusedError(rest.decode())
                yield rest if kind == b"+" else BadRow(rest.decode())
            if reader.wait() != 0:
                raise RefusedError("This Parquet file cannot be read: it is damaged.")
        finally:
            reader.kill()
            reader.wait()
            reader.stdout.close()


@contextmanager
def _on_disk(file: Any) -> Iterator[IO[bytes]]:
    """The file as one that another process can read: what is small was kept in memory."""
    if hasattr(file, "temporary_file_path"):
        with Path(file.temporary_file_path()).open("rb") as found:
            yield found
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy
