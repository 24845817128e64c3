"""A stored trajectory as one line of JSON. What is stored as it will be written is checked by
decoding it, and not encoded again."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

from engine.records.stored import COLUMNS, StoredTrajectory

_NUMBERS = len(COLUMNS) - 1  # columns before the texts


def pieces(source: StoredTrajectory, trained: Any = None) -> Iterator[tuple[bytes, bytes]]:
    """The line, which `Trajectory.from_dict` reads back, a piece at a time; with each the bytes
    that would end the line after it. `trained`: what stands there under this name, if anything.

    Raises DamagedShardError, and KeyError, TypeError, AttributeError or IndexError where something
    else was written.
    """
    yield _json(source.fields)[:-1] + b', "segments": [', b'], "steps": []}'
    for index in range(len(source.segments)):
        yield (b", " if index else b"") + _segment(source, index), b'], "steps": []}'
    yield b'], "steps": [', b"]}"
    comma = b""
    for steps, raw in source.step_frames():
        for part in _steps(source, steps, raw):
            yield comma + part, b"]}"
            comma = b", "
    yield b"]" if trained is None else b'], "trained": ' + _json(trained), b"}"
    yield b"}", b""


def _steps(source: StoredTrajectory, steps: list[Any], raw: bytes) -> Iterator[bytes]:
    if steps and not any("long" in step for step in steps) and _is_plain(raw):
        yield raw.strip()[1:-1]
        return
    for step in steps:
        yield _with_long(source, step)


def _with_long(source: StoredTrajectory, step: dict[str, Any]) -> bytes:
    """A step with its long fields, as `Step` in dictionaries."""
    whole: dict[bytes, bytes] = {}
    for name in step.get("long", {}):
        owner = step if name in step else step["call"]
        value, raw = source.long_frame(step, name)
        if not _is_plain(raw):
            owner[name] = value
            continue
        # Stands for it while the step is encoded: unknown to whoever wrote the step.
        owner[name] = place = secrets.token_hex(16)
        whole[f'"{place}"'.encode()] = raw.strip()
    step.pop("long", None)
    encoded = _json(step)
    for mark, raw in whole.items():
        encoded = encoded.replace(mark, raw)
    return encoded


def _segment(source: StoredTrajectory, index: int) -> bytes:
    columns: list[list[bytes]] = [[] for _ in COLUMNS]
    for values, raw in source.token_frames(index):
        for column, part in zip(columns, _columns(values, raw), strict=True):
            if part:
                column.append(part)
    parent = _json(source.segments[index]["parent"])
    named = (
        b'"%s": [%s]' % (name.encode(), b",".join(parts))
        for name, parts in zip(COLUMNS, columns, strict=True)
    )
    return b"{%s, " % b", ".join(named) + b'"parent": %s}' % parent


def _columns(values: list[list[Any]], raw: bytes) -> list[bytes]:
    """Each column's elements as JSON, cut out of the frame where its numbers let that be."""
    parts = raw.strip()[2:-2].split(b"],[", _NUMBERS)
    is_simple = len(parts) == len(COLUMNS) and _is_plain(raw)
    if is_simple and not any(b"[" in part or b'"' in part for part in parts[:_NUMBERS]):
        return parts
    return [_json(column)[1:-1] for column in values]


def _is_plain(raw: bytes) -> bool:
    """Whether JSON that was decoded without an error can stand in a line as it is: nothing in it
    ends the line, and no escape smuggles in half of a surrogate pair, which is no text."""
    if raw.find(b"\n", 0, len(raw) - 1) >= 0:
        return False
    return b"\\u" not in raw or (b"\\ud" not in raw and b"\\uD" not in raw)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
