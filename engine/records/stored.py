"""One trajectory as bytes that can be read in parts: zstd frames, each one line of JSON.

    skippable frame   the length of the head frame, 4 bytes little-endian
    head              fields of the trajectory, and where the other frames lie
    outline           a few numbers per step, by column
    steps             frames of consecutive steps; long fields are cut short here ...
    field             ... and stand whole in a frame of their own
    tokens            frames of TOKENS_PER_FRAME tokens of one segment, by column

Offsets count from the end of the head frame. `zstd -dc` of a shard prints all of it.
"""

import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, get_args

import zstandard

from engine.records.frames import DamagedShardError, Frames
from engine.records.trajectory import (
    Reward,
    Segment,
    Step,
    StepField,
    StopReason,
    ToolCall,
    Trajectory,
)

STEPS_PER_FRAME = 64
CHARS_PER_FRAME = 256_000
TOKENS_PER_FRAME = 8_192
LONG_FIELD = 16_000  # characters; a longer field gets a frame of its own
PREVIEW = 2_000  # characters of a long field that stay with its step
FIELDS: tuple[StepField, ...] = get_args(StepField)

_MAGIC = struct.pack("<II", 0x184D2A50, 4)
_FIRST_READ = 64 * 2**10
_LARGEST_FRAME = 256 * 2**20
COLUMNS = ("ids", "loss_mask", "logprobs", "versions", "texts")


def encode(trajectory: Trajectory) -> bytes:
    """The bytes of one trajectory in a shard."""
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    frames: list[bytes] = []
    end = 0

    def add(value: Any) -> list[int]:
        nonlocal end
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        frames.append(compressor.compress(text.encode("utf-8", "replace") + b"\n"))
        end += len(frames[-1])
        return [end - len(frames[-1]), len(frames[-1])]

    data = {k: v for k, v in vars(trajectory).items() if k not in ("segments", "steps")}
    data["reward"] = asdict(trajectory.reward)
    head = {
        "trajectory": data,
        "step_count": len(trajectory.steps),
        "outline": add(_outline(trajectory.steps)),
        "steps": [[first, *add(steps)] for first, steps in _step_frames(trajectory.steps, add)],
        "segments": [
            {
                "parent": segment.parent,
                "tokens": len(segment.ids),
                "texts": bool(segment.texts),
                "frames": [
                    add([getattr(segment, c)[i : i + TOKENS_PER_FRAME] for c in COLUMNS])
                    for i in range(0, len(segment.ids), TOKENS_PER_FRAME)
                ],
            }
            for segment in trajectory.segments
        ],
    }
    body = frames.copy()
    frames.clear()
    add(head)
    return b"".join([_MAGIC, struct.pack("<I", len(frames[0])), frames[0], *body])


def _step_frames(
    steps: list[Step], add: Callable[[Any], list[int]]
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Consecutive steps as dictionaries, a frame at a time; adds a frame for each long field."""
    first, size, frame = 0, 0, list[dict[str, Any]]()
    for position, step in enumerate(steps):
        data = asdict(step)
        call = data["call"] or {}
        long: dict[str, list[int]] = {}
        for name in FIELDS:
            owner = data if name in data else call
            value = owner.get(name)
            text = value if isinstance(value, str) else _json(value) if value is not None else ""
            size += min(len(text), LONG_FIELD)
            if len(text) > LONG_FIELD:
                long[name] = [*add(value), len(text)]
                owner[name] = value[:PREVIEW] if isinstance(value, str) else {}
        frame.append({**data, "long": long} if long else data)
        if len(frame) == STEPS_PER_FRAME or size > CHARS_PER_FRAME:
            yield first, frame
            first, size, frame = position + 1, 0, []
    if frame:
        yield first, frame


def _outline(steps: list[Step]) -> dict[str, Any]:
    """Per step: which tool (index in `tools`, -1: none), error, duration and so on, by column."""
    tools = sorted({step.call.name for step in steps if step.call})
    errors = sorted({step.call.error for step in steps if step.call and step.call.error})
    return {
        "tools": tools,
        "errors": errors,
        "tool": [tools.index(step.call.name) if step.call else -1 for step in steps],
        "error": [
            errors.index(step.call.error) if step.call and step.call.error else -1 for step in steps
        ],
        "duration_s": [step.call.duration_s if step.call else None for step in steps],
        "tokens": [step.stop - step.start for step in steps],
        "chars": [len(step.text) + (len(step.call.result) if step.call else 0) for step in steps],
        "segment": [step.segment for step in steps],
        "reward": [step.reward for step in steps],
        "detour": [step.detour for step in steps],
        "answer": [step.answer is not None for step in steps],
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class StoredTrajectory:
    """Reads parts of one trajectory. `read(start, length)` gives bytes of its range.

    Every method raises DamagedShardError where the bytes are not what was written.
    """

    def __init__(self, read: Callable[[int, int], bytes], length: int) -> None:
        self._frames = Frames(read, length, _MAGIC, _FIRST_READ)
        self._recent: tuple[list[int], list[Any]] = ([], [])
        head = _parsed(self._frames.head(_LARGEST_FRAME), dict)
        try:
            self.step_count = int(head["step_count"])
            self.fields = dict(head["trajectory"])
            self._steps, self._outline = list(head["steps"]), list(head["outline"])
            self.segments: list[dict[str, Any]] = list(head["segments"])
        except (KeyError, TypeError, ValueError) as error:
            raise _foreign(error) from error

    def outline(self) -> dict[str, Any]:
        return dict(self._frame(self._outline, dict))

    def steps(self, first: int, count: int) -> list[dict[str, Any]]:
        """Steps `first` to `first + count`, as `Step` in dictionaries. A step with cut fields has
        `long`: {name: [offset, length, characters]}; the whole field gives `field`."""
        frames = self._steps
        starts = [frame[0] for frame in frames]
        found: list[dict[str, Any]] = []
        position = max(0, bisect_right(starts, first) - 1)
        while position < len(frames) and starts[position] < first + count:
            steps = self._frame(frames[position][1:], list)
            low = max(0, first - starts[position])
            found += steps[low : first + count - starts[position]]
            position += 1
        return found

    def step_frames(self) -> Iterator[tuple[list[dict[str, Any]], bytes]]:
        """All steps as `steps` gives them, a frame at a time, and the JSON of each frame."""
        for frame in self._steps:
            raw = self._raw(frame[1:])
            yield _parsed(raw, list), raw

    def token_frames(self, segment: int) -> Iterator[tuple[list[list[Any]], bytes]]:
        """All tokens of a segment by column, a frame at a time, and the JSON of each frame."""
        for where in self.segments[segment]["frames"]:
            raw = self._raw(where)
            yield _parsed(raw, list), raw

    def field(self, step: int, name: str) -> str:
        """The whole of one of FIELDS of a step, arguments as JSON; "" where it has none.

        Raises IndexError where there is no such step."""
        data = self.steps(step, 1)[0]
        owner = data if name in data else data["call"] or {}
        value = owner.get(name)
        if name in data.get("long", {}):
            return self.long_field(data, name)
        return value if isinstance(value, str) else "" if value is None else _json(value)

    def long_field(self, step: dict[str, Any], name: str) -> str:
        """The whole of a field that is cut in a step that `steps` gave."""
        value = self.long_frame(step, name)[0]
        return value if isinstance(value, str) else _json(value)

    def long_frame(self, step: dict[str, Any], name: str) -> tuple[Any, bytes]:
        """The whole of a cut field, and its JSON."""
        raw = self._raw(step["long"][name][:2])
        return _parsed(raw, object), raw

    def tokens(self, segment: int, start: int, stop: int) -> Segment:
        """Tokens `start` to `stop` of a segment, all columns cut to this range."""
        where = self.segments[segment]
        stop = min(stop, where["tokens"])
        columns: list[list[Any]] = [[] for _ in COLUMNS]
        for position in range(start // TOKENS_PER_FRAME, -(-stop // TOKENS_PER_FRAME)):
            base = position * TOKENS_PER_FRAME
            frame = self._token_frame(where["frames"][position])
            for column, part in zip(columns, frame, strict=True):
                column += part[max(0, start - base) : stop - base]
        return Segment(**dict(zip(COLUMNS, columns, strict=True)), parent=where["parent"])

    def _token_frame(self, where: list[int]) -> list[Any]:
        """Consecutive steps share a frame: the last one is kept."""
        if self._recent[0] != where:
            self._recent = (where, self._frame(where, list))
        return self._recent[1]

    def whole(self, with_tokens: bool = True) -> Trajectory:
        """All of it; without tokens its segments are empty lists, and most bytes stay unread."""
        try:
            steps = []
            for data in self.steps(0, self.step_count):
                for name, where in data.pop("long", {}).items():
                    owner = data if name in data else data["call"]
                    owner[name] = self._frame(where[:2], object)
                call = ToolCall(**data["call"]) if data["call"] else None
                steps.append(Step(**{**data, "call": call}))
            fields = {
                **self.fields,
                "stop_reason": StopReason(self.fields["stop_reason"]),
                "reward": Reward(**self.fields["reward"]),
            }
            segments = [
                self.tokens(index, 0, where["tokens"] if with_tokens else 0)
                for index, where in enumerate(self.segments)
            ]
            return Trajectory(**fields, segments=segments, steps=steps)
        except DamagedShardError:
            raise
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise _foreign(error) from error

    def _frame(self, where: list[int], kind: type) -> Any:
        return _parsed(self._raw(where), kind)

    def _raw(self, where: list[int]) -> bytes:
        place, length = where
        return self._frames.frame(place, length, _LARGEST_FRAME)


def _parsed(raw: bytes, kind: type) -> Any:
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise DamagedShardError(f"This part of the shard is damaged: {error}") from error
    if not isinstance(value, kind):
        raise DamagedShardError(
            f"This part of the shard is damaged: no {kind.__name__} in its frame."
        )
    return value


def _foreign(error: Exception) -> DamagedShardError:
    return DamagedShardError(f"This part of the shard was written by something else: {error!r}")
