"""Reads the Parquet file on standard input, in a process of its own; see `parquet`.

A file that is made to harm can end the process that decodes it, or fill its memory: here that is
this process. It writes a line for each row, `+` and the row as JSON or `-` and what is wrong with
it, and, where the file as a whole is refused, `!` and why.
"""

import json
import os
import resource
import sys
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any

MAX_ROWS = 10_000_000
MAX_BYTES = 512 * 2**20  # of the rows as JSON: as much as an upload of JSON lines may have
MAX_MEMORY = 4 * 2**30
BATCH = 32  # rows that are in memory as objects


class _TooLargeError(Exception):
    pass


def main() -> None:
    """Ends the process: with exit code 0 where everything was said."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    from pyarrow.lib import ArrowException

    out = sys.stdout.buffer
    try:
        for line in _lines(sys.stdin.buffer):
            out.write(line + b"\n")
    except _TooLargeError as error:
        out.write(f"!{error}: upload it in parts.\n".encode())
    except (ArrowException, OSError, UnicodeDecodeError, EOFError, MemoryError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        out.write(f"!This Parquet file cannot be read: {reason[0][:300]}\n".encode())
    out.flush()
    # Not the usual way out, in which Arrow's threads now and then end the process by a signal.
    os._exit(0)


def _lines(file: Any) -> Iterator[bytes]:
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(file)
    if table.metadata.num_rows > MAX_ROWS:
        given = table.metadata.num_rows
        raise _TooLargeError(f"A Parquet file has at most {MAX_ROWS:,} rows, not {given:,}")
    size = 0
    for batch in table.iter_batches(batch_size=BATCH, use_threads=False):
        for row in batch.to_pylist():
            line = _line(row)
            size += len(line)
            if size > MAX_BYTES:
                raise _TooLargeError(f"The rows have more than {MAX_BYTES:,} bytes as JSON")
            yield line


def _line(row: dict[str, Any]) -> bytes:
    """A column that is null in a row is absent from it; dates and times become ISO text."""
    given = {name: value for name, value in row.items() if value is not None}
    try:
        return b"+" + _json(given)
    except (TypeError, ValueError) as error:
        return f"-{_bad_column(given)}{error}".replace("\n", " ").encode()


def _bad_column(given: dict[str, Any]) -> str:
    for name, value in given.items():
        try:
            _json(value)
        except (TypeError, ValueError):
            return f"Column {name}: "
    return ""


def _json(value: Any) -> bytes:
    return json.dumps(
        value, default=_as_text, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode()


def _as_text(value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    raise TypeError(f"JSON has no word for {type(value).__name__}: cast it to text or a number")


if __name__ == "__main__":
    main()
