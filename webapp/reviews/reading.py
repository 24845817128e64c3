"""What of a stored trajectory goes to a page: windows of steps, the context, differences.

Long things are cut here, and say so under `more`; nothing reads or sends a whole trajectory.
Characters are Unicode code points.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import Any

from engine.records.frames import DamagedShardError
from engine.records.stored import StoredTrajectory
from engine.records.trajectory import Segment
from webapp import storage
from webapp.problems import RefusedError
from webapp.reviews import finding, images
from webapp.reviews.models import Trajectory

MAX_STEPS = 200
CUT = 4_000  # characters of a field in a window
MAX_TOKENS = 4_000  # tokens of a step, or of one page of a context
MAX_WHOLE = 16_000_000  # characters of a field that are read to show its images
_AT_ONCE = 64


@contextmanager
def stored(row: Trajectory, in_order: bool = False) -> Iterator[StoredTrajectory]:
    """The trajectory in its shard, read by byte range; `in_order`: all of it, by one open file.

    Raises RefusedError: 410 where the shard is gone, 500 where it is damaged.
    """

    def read(start: int, length: int) -> bytes:
        if file is None:
            return storage.read_blob(row.shard, row.offset + start, length)
        file.seek(row.offset + start)
        return file.read(length)

    try:
        with storage.open_blob(row.shard) if in_order else nullcontext() as file:
            yield StoredTrajectory(read, row.length)
    except FileNotFoundError:
        raise RefusedError(
            f"The shard {row.shard[:12]}… that holds this trajectory is no longer in storage. "
            "What lists show of it is kept.",
            status=410,
        ) from None
    except DamagedShardError as error:
        raise RefusedError(
            f"Trajectory {row.id} cannot be read: {error} "
            f"(shard {row.shard[:12]}…, bytes {row.offset} to {row.offset + row.length}).",
            status=500,
        ) from error


def term_weights(spec: dict[str, Any], reward: dict[str, Any]) -> dict[str, float]:
    """The weight of each reward term in a run's frozen spec, by the term's kind; that of a process
    term with the curriculum's factor by which this reward was graded."""
    scheme = spec.get("reward", {})
    later = (scheme.get("curriculum") or {}).get("process", [])
    factor = reward.get("process_weight")
    return {
        term["kind"]: term["weight"]
        * (factor if term["kind"] in later and factor is not None else 1)
        for term in scheme.get("terms", [])
    }


def terms_of(spec: dict[str, Any], reward: dict[str, Any]) -> list[dict[str, Any]]:
    """Each term of a reward: its name, raw value, and weight where the spec still names it."""
    weights = term_weights(spec, reward)
    return [
        {"name": name, "raw": raw, "weight": weights.get(name)}
        for name, raw in reward["terms"].items()
    ]


def window(
    source: StoredTrajectory, first: int, count: int, with_tokens: bool
) -> list[dict[str, Any]]:
    """At most MAX_STEPS steps from `first`; `more` of a step names what was cut: {name: size}."""
    return [_step(source, step, with_tokens) for step in source.steps(first, min(count, MAX_STEPS))]


def _step(source: StoredTrajectory, step: dict[str, Any], with_tokens: bool) -> dict[str, Any]:
    more = {name: size for name, (_, _, size) in step.get("long", {}).items()}
    call = step["call"]
    embedded: dict[str, list[dict[str, Any]]] = {}
    for owner, name in ((step, "text"), (step, "answer"), (call or {}, "result")):
        if value := owner.get(name):
            whole = _with_images(source, step, name, value, more.get(name, 0))
            owner[name], found, stop = images.condense(whole, 0, CUT)
            if found:
                embedded[name] = described(found)
            if stop < len(whole):
                more.setdefault(name, len(whole))
    if call and call["arguments"]:
        size = len(_json(call["arguments"]))
        if "arguments" in more or size > CUT:
            more.setdefault("arguments", size)
            call["arguments"] = {}
    step.pop("long", None)
    shown = {**step, "more": more, "embedded": embedded}
    if with_tokens:
        stop = min(step["stop"], step["start"] + MAX_TOKENS)
        shown["tokens"] = _tokens(source.tokens(step["segment"], step["start"], stop))
        if stop < step["stop"]:
            more["tokens"] = step["stop"] - step["start"]
    return shown


def _with_images(
    source: StoredTrajectory, step: dict[str, Any], name: str, value: str, size: int
) -> str:
    """The field, whole where its beginning ends inside an image or shows one."""
    if not size or size > MAX_WHOLE or not images.may_hold(value):
        return value
    return finding.field(source, step, name)


def described(found: list[tuple[int, images.Embedded]]) -> list[dict[str, Any]]:
    return [{"at": at, **vars(one)} for at, one in found]


def field_part(text: str, first: int, count: int) -> dict[str, Any]:
    """Characters of a field from `first` on; from the beginning of an image where one is cut."""
    if images.may_hold(text):
        inside = (one.start for one in images.find(text) if one.start < first < one.stop)
        first = next(inside, first)
    part, found, stop = images.condense(text, first, count)
    return {
        "first": first,
        "stop": stop,
        "total": len(text),
        "text": part,
        "embedded": described(found),
    }


def image_at(text: str, start: int) -> images.Image | None:
    """The image whose characters begin at `start`; None where none that may be shown does."""
    found = images.at(text, start)
    return images.decode(text[found.start : found.stop]) if found and found.kind else None


def _tokens(part: Segment) -> list[dict[str, Any]]:
    """One entry per token; `text` is None where it continues the character of the one before."""
    return [
        {
            "id": part.ids[i],
            "text": part.texts[i] if part.texts else "",
            "logprob": part.logprobs[i],
            "version": part.versions[i],
            "trained": part.loss_mask[i],
        }
        for i in range(len(part.ids))
    ]


def context(source: StoredTrajectory, step: int, before: int | None) -> dict[str, Any]:
    """What the model saw when it began this step: the tokens of its segment up to there.

    The page ends at token `before` (the step's first token unless given); `first` is where it
    begins, 0 when nothing came earlier. Spans are runs of one writer. Raises IndexError where
    there is no such step.
    """
    data = source.steps(step, 1)[0]
    total = data["start"]
    stop = total if before is None else max(0, min(before, total))
    first = max(0, stop - MAX_TOKENS)
    segment = data["segment"]
    part = source.tokens(segment, first, stop)
    turns = _turns(source, data, first)
    return {
        "step": step,
        "segment": segment,
        "parent": source.segments[segment]["parent"],
        "total": total,
        "first": first,
        "stop": stop,
        "spans": _spans(part, first, turns),
    }


def _turns(source: StoredTrajectory, step: dict[str, Any], first: int) -> list[tuple[int, int]]:
    """Token ranges of the policy's turns before `step` in its segment, back to token `first`."""
    found: list[tuple[int, int]] = []
    stop = step["index"]
    while stop > 0:
        start = max(0, stop - _AT_ONCE)
        for earlier in reversed(source.steps(start, stop - start)):
            if earlier["segment"] != step["segment"] or earlier["stop"] <= first:
                return found
            found.append((earlier["start"], earlier["stop"]))
        stop = start
    return found


def _spans(part: Segment, offset: int, turns: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Runs of consecutive tokens by who wrote them and whether they were trained on.

    The policy's are those of a turn, and those with a policy version: an edited context repeats
    turns of the segment that it was made from.
    """
    own = [version >= 0 for version in part.versions]
    for start, stop in turns:
        for position in range(max(0, start - offset), min(len(own), stop - offset)):
            own[position] = True
    spans = []
    for (by_policy, trained), run in groupby(
        range(len(part.ids)), lambda i: (own[i], part.loss_mask[i])
    ):
        positions = list(run)
        low, high = positions[0], positions[-1] + 1
        texts = part.texts[low:high]
        spans.append(
            {
                "by": "policy" if by_policy else "environment",
                "trained": trained,
                "start": offset + low,
                "stop": offset + high,
                "ids": part.ids[low:high],
                "text": "".join(t for t in texts if t) if texts else None,
            }
        )
    return spans


def divergence(a: StoredTrajectory, b: StoredTrajectory) -> dict[str, Any] | None:
    """The first step at which two trajectories differ, in which field and at which character.

    `field` is "end" where one of them has no such step; None where they are the same.
    """
    shared = min(a.step_count, b.step_count)
    for first in range(0, shared, _AT_ONCE):
        for x, y in zip(a.steps(first, _AT_ONCE), b.steps(first, _AT_ONCE), strict=False):
            for name in ("text", "tool", "arguments", "error", "result", "answer"):
                left, right = finding.field(a, x, name), finding.field(b, y, name)
                if left != right:
                    return {"step": x["index"], "field": name, "at": _first_difference(left, right)}
    if a.step_count != b.step_count:
        return {"step": shared, "field": "end", "at": 0}
    return None


def _first_difference(left: str, right: str) -> int:
    """The length of the common beginning, by halving: fields can be 20 MB long."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
