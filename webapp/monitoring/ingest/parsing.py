"""From a request body to events. A bad item is rejected alone, the others are kept."""

import gzip
import io
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import zstandard
from pydantic import TypeAdapter, ValidationError

from engine.records.events import MAX_BATCH_BYTES, MAX_BATCH_ITEMS, Event
from webapp.plain_text import storable_json
from webapp.problems import RefusedError

MAX_TIME = 1e11  # seconds since 1970; the year 5138
EVENTS: TypeAdapter[list[Any]] = TypeAdapter(list[Event])
EVENT: TypeAdapter[Any] = TypeAdapter(Event)


@dataclass(frozen=True)
class Rejected:
    """An item that was not stored: its position in the batch, the field, and what is wrong."""

    index: int
    field: str
    message: str


@dataclass
class Batch:
    """What a request brought. `numbers` are (source, seq) of rejected items that name both."""

    events: list[tuple[int, Any]]  # (position, event)
    rejected: list[Rejected] = field(default_factory=list)
    numbers: list[tuple[str, int]] = field(default_factory=list)

    def reject(self, index: int, event: Any, field_name: str, message: str) -> None:
        self.rejected.append(Rejected(index, field_name, message))
        self.numbers.append((event.source, event.seq))


def decompress(body: bytes, encoding: str) -> bytes:
    """The plain body. Raises RefusedError: 413 above 8 MiB, 415 for an encoding we do not know."""
    if len(body) > MAX_BATCH_BYTES:
        raise _too_large()
    encoding = encoding.strip().lower()
    try:
        if encoding in ("", "identity"):
            return body
        if encoding == "gzip":
            with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
                plain = file.read(MAX_BATCH_BYTES + 1)
        elif encoding == "zstd":
            reader = zstandard.ZstdDecompressor(max_window_size=MAX_BATCH_BYTES).stream_reader(
                body, read_across_frames=True
            )
            plain = reader.read(MAX_BATCH_BYTES + 1)
        else:
            raise RefusedError(f"Content-Encoding {encoding!r}: use gzip or zstd.", status=415)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise RefusedError(f"The body is no {encoding}: {error}", status=400) from None
    if len(plain) > MAX_BATCH_BYTES:
        raise _too_large()
    return plain


def _too_large() -> RefusedError:
    return RefusedError(
        f"A batch has at most {MAX_BATCH_BYTES:,} bytes, also when it is decompressed: "
        "send fewer items.",
        status=413,
    )


def parse(body: bytes) -> Batch:
    """The events in {"items": [...]}. Raises RefusedError where it is no such object (400, 413)."""
    items = _items(body)
    if len(items) > MAX_BATCH_ITEMS:
        raise RefusedError(
            f"A batch has at most {MAX_BATCH_ITEMS:,} items, not {len(items):,}.", status=413
        )
    try:
        batch = Batch(list(enumerate(EVENTS.validate_python(items))))
    except ValidationError as error:
        batch = _parse_each(items, {int(item["loc"][0]) for item in error.errors()})
    for index, event in batch.events:
        if not 0 <= event.at < MAX_TIME:  # also refuses NaN
            batch.reject(index, event, "at", "The time is in seconds since 1970.")
    if batch.rejected:
        refused = {item.index for item in batch.rejected}
        batch.events = [pair for pair in batch.events if pair[0] not in refused]
    return batch


def _items(body: bytes) -> list[Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"The body is no JSON: {error}", status=400) from None
    if not isinstance(data, dict) or not isinstance(data.get("items"), list):
        raise RefusedError('A batch looks like {"items": [...]}.', status=400)
    found: list[Any] = data["items"]
    return found


def _parse_each(items: list[Any], bad: set[int]) -> Batch:
    batch = Batch([])
    for index, item in enumerate(items):
        try:
            batch.events.append((index, EVENT.validate_python(storable_json(item))))
        except ValidationError as error:
            assert index in bad
            first = error.errors(include_url=False, include_context=False)[0]
            name = ".".join(str(part) for part in first["loc"][1:])
            batch.rejected.append(Rejected(index, name, first["msg"]))
            if (number := _number_of(storable_json(item))) is not None:
                batch.numbers.append(number)
    return batch


def _number_of(item: Any) -> tuple[str, int] | None:
    """(source, seq) of an item that is wrong elsewhere."""
    if not isinstance(item, dict):
        return None
    source, seq = item.get("source"), item.get("seq")
    if isinstance(source, str) and 1 <= len(source) <= 80 and type(seq) is int and 0 < seq < 2**63:
        return source, seq
    return None
