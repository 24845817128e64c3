"""Finding a text in a stored trajectory: exactly as typed, whatever its case, in any language.

Positions are code points of the field as it is stored.
"""

import json
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from engine.records.frames import DamagedShardError
from engine.records.stored import FIELDS, StoredTrajectory
from webapp.reviews import images

MAX_MATCHES = 200
AROUND = 40  # characters shown on each side of a match
_AT_ONCE = 64

P = ParamSpec("P")
T = TypeVar("T")
Text = tuple[int | None, str, str]  # step (None: of the whole), field, text


def fold(text: str) -> str:
    """The text in lower case, each character still at its place."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def sound(walk: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """A walk through a stored trajectory; where something else was written it raises
    DamagedShardError, as for bytes that are damaged."""

    @wraps(walk)
    def walked(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from walk(*args, **kwargs)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise DamagedShardError(f"It is no trajectory: {error!r}.") from error

    return walked


@sound
def texts(source: StoredTrajectory) -> Iterator[Text]:
    """The prompt, then every text of each step, in order; empty ones are left out. Images and the
    like are blanked: nobody looks for what is written in base64."""
    yield None, "prompt", str(source.fields["prompt"])
    for first in range(0, source.step_count, _AT_ONCE):
        for step in source.steps(first, _AT_ONCE):
            for name in FIELDS:
                if text := field(source, step, name):
                    yield int(step["index"]), name, images.blank(text)


def field(source: StoredTrajectory, step: dict[str, Any], name: str) -> str:
    """A field of a step as text, fetched whole where the step holds only its beginning."""
    if name in step.get("long", {}):
        return source.long_field(step, name)
    call = step["call"] or {}
    if name == "tool":
        return call.get("name") or ""
    value = step[name] if name in step else call.get(name)
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def search(source: StoredTrajectory, query: str) -> dict[str, Any]:
    """Where `query` occurs: {matches, complete}; at most MAX_MATCHES."""
    found = matches(texts(source), query, MAX_MATCHES + 1)
    return {"matches": found[:MAX_MATCHES], "complete": len(found) <= MAX_MATCHES}


def matches(given: Iterator[Text], query: str, limit: int) -> list[dict[str, Any]]:
    """The first `limit` places where `query` occurs, each with what stands around it."""
    wanted = fold(query)
    found: list[dict[str, Any]] = []
    for step, name, text in given:
        folded = fold(text)
        start = folded.find(wanted)
        while start >= 0:
            found.append({"step": step, "field": name, **_around(text, start, len(wanted))})
            if len(found) == limit:
                return found
            start = folded.find(wanted, start + len(wanted))
    return found


def _around(text: str, start: int, length: int) -> dict[str, Any]:
    stop = start + length
    return {
        "start": start,
        "stop": stop,
        "before": text[max(0, start - AROUND) : start],
        "match": text[start:stop],
        "after": text[stop : stop + AROUND],
    }
