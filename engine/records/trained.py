"""What the loss saw of a trajectory's tokens in one step, as bytes that can be read in parts.

    magic, 4 bytes    names this format and its version
    length, 4 bytes   of the head, little-endian
    head              zstd frame of JSON: which tokens, which columns, where the chunks lie
    chunks            zstd frames of CHUNK_TOKENS tokens each, one column after the other; of
                      numbers first all their first bytes, then all the second ones, and so on

Offsets count from the end of the head. Tokens that the environment wrote have no place in it.
"""

import hashlib
import json
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

import zstandard

from engine.records.frames import DamagedShardError, Frames

CHUNK_TOKENS = 16_384
# Types as numpy and `array` name them alike: float32 and int8.
COLUMNS: dict[str, Literal["f", "b"]] = {
    "logprob": "f",  # under the policy that was trained, at the temperature of sampling
    "entropy": "f",  # of that policy at the token, nats
    "advantage": "f",
    "weight": "f",  # importance weight as the loss took it, before any bound
    "clipped": "b",  # +1: an upper bound changed what the token contributes, -1: a lower one
    "correction": "f",  # what the policy term was multiplied by; 0: masked
    "passes": "b",  # how often the step trained on it; the other columns are of the last time
}
# Why a step that had a trajectory in its batch did not train on it; empty: it did.
LeftOut = Literal["", "invalid_reward", "no_tokens", "truncated", "no_advantage", "critic_warmup"]

_MAGIC = b"CVT1"
_FIRST_READ = 16 * 2**10
_LARGEST_HEAD = 64 * 2**20


@dataclass(frozen=True)
class TrainedTokens:
    """One trajectory in one trainer step. `version`: of the policy before that step.

    spans: (segment, start, stop) of the trained tokens, in order; columns: by name, the bytes of
    one number for each of them, of the type that COLUMNS says. What was left out has no tokens.
    """

    trajectory: str
    step: int
    version: int
    spans: Sequence[tuple[int, int, int]] = ()
    columns: Mapping[str, bytes] = field(default_factory=dict)
    left_out: LeftOut = ""

    @property
    def tokens(self) -> int:
        return sum(stop - start for _, start, stop in self.spans)


def write_trained(items: Iterable[TrainedTokens]) -> tuple[bytes, str, list[dict[str, Any]]]:
    """The shard's bytes, its SHA-256 in hex, and one index row for each item.

    Raises ValueError where columns do not fit their tokens.
    """
    # One for all: of a short trajectory, making one takes longer than compressing.
    compressor = _compressor()
    parts: list[bytes] = []
    rows: list[dict[str, Any]] = []
    offset = 0
    for item in items:
        parts.append(encode_trained(item, compressor))
        rows.append(
            {
                "trajectory": item.trajectory,
                "step": item.step,
                "version": item.version,
                "tokens": item.tokens,
                "left_out": item.left_out,
                "offset": offset,
                "length": len(parts[-1]),
            }
        )
        offset += len(parts[-1])
    blob = b"".join(parts)
    return blob, hashlib.sha256(blob).hexdigest(), rows


def _compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=3, write_checksum=True)


def encode_trained(
    item: TrainedTokens, compressor: zstandard.ZstdCompressor | None = None
) -> bytes:
    """Raises ValueError where columns do not fit their tokens."""
    compressor = compressor or _compressor()
    for name, data in item.columns.items():
        if name not in COLUMNS:
            raise ValueError(f"There is no column {name!r}: known are {', '.join(COLUMNS)}.")
        size = item.tokens * array(COLUMNS[name]).itemsize
        if len(data) != size:
            raise ValueError(f"{name} of {item.tokens} tokens has {len(data)} bytes, not {size}.")
    chunks = [
        compressor.compress(b"".join(_planes(item, name, first) for name in item.columns))
        for first in range(0, item.tokens, CHUNK_TOKENS)
    ]
    head = {
        "spans": item.spans,
        "columns": list(item.columns),
        "chunks": [len(chunk) for chunk in chunks],
    }
    packed = compressor.compress(json.dumps(head, separators=(",", ":")).encode())
    return b"".join([_MAGIC, struct.pack("<I", len(packed)), packed, *chunks])


def _planes(item: TrainedTokens, name: str, first: int) -> bytes:
    """A chunk of a column: bytes of like weight side by side, which compress well."""
    size = array(COLUMNS[name]).itemsize
    part = item.columns[name][first * size : (first + CHUNK_TOKENS) * size]
    return b"".join(part[place::size] for place in range(size))


class StoredTrained:
    """Reads parts of one item. `read(start, length)` gives bytes of its range.

    Every method raises DamagedShardError where the bytes are not what was written.
    """

    def __init__(self, read: Callable[[int, int], bytes], length: int) -> None:
        self._frames = Frames(read, length, _MAGIC, _FIRST_READ)
        raw = self._frames.head(_LARGEST_HEAD)
        try:
            head = json.loads(raw)
            self.spans = [tuple(map(int, span)) for span in head["spans"]]
            self.columns = [str(name) for name in head["columns"]]
            self._sizes = [array(COLUMNS[name]).itemsize for name in self.columns]
            sizes = list(map(int, head["chunks"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedShardError(f"This part of the shard is damaged: {error!r}") from error
        counts = [stop - start for _, start, stop in self.spans]
        self._before = [0, *accumulate(counts)]
        self._recent: tuple[int, dict[str, list[float]]] = (-1, {})
        self._chunks = list(zip(accumulate([0, *sizes]), sizes, strict=False))

    def all(self) -> dict[str, list[float | None]]:
        """By column, one entry for each trained token, in the order of `spans`."""
        return self._values(0, self._before[-1])

    def part(self, segment: int, start: int, stop: int) -> dict[str, list[float | None]]:
        """By column, one entry for each token `start` to `stop` of a segment; None where the step
        did not train on it."""
        found: dict[str, list[float | None]] = {
            name: [None] * (stop - start) for name in self.columns
        }
        first = max(0, bisect_right(self.spans, (segment, start)) - 1)
        for place in range(first, len(self.spans)):
            of, low, high = self.spans[place]
            if of > segment or (of == segment and low >= stop):
                break
            if of < segment or high <= start:
                continue
            cut, end = max(low, start), min(high, stop)
            at = self._before[place] + cut - low
            for name, values in self._values(at, at + end - cut).items():
                found[name][cut - start : end - start] = values
        return found

    def _values(self, start: int, stop: int) -> dict[str, list[float | None]]:
        """Of the trained tokens `start` to `stop`, counted over all spans."""
        values: dict[str, list[float | None]] = {name: [] for name in self.columns}
        for chunk in range(start // CHUNK_TOKENS, -(-stop // CHUNK_TOKENS)):
            base = chunk * CHUNK_TOKENS
            count = min(CHUNK_TOKENS, self._before[-1] - base)
            if self._recent[0] != chunk:  # consecutive turns share one
                self._recent = (chunk, self._chunk(chunk, count))
            for name, column in self._recent[1].items():
                values[name] += column[max(0, start - base) : stop - base]
        return values

    def _chunk(self, number: int, count: int) -> dict[str, list[float]]:
        if number >= len(self._chunks):
            raise DamagedShardError("This part of the shard is damaged: a chunk is missing.")
        data = self._frames.frame(*self._chunks[number], CHUNK_TOKENS * sum(self._sizes))
        if len(data) != count * sum(self._sizes):
            raise DamagedShardError("This part of the shard is damaged: a chunk has another size.")
        found: dict[str, list[float]] = {}
        at = 0
        for name, size in zip(self.columns, self._sizes, strict=True):
            plain = bytearray(count * size)
            for place in range(size):
                plain[place::size] = data[at : at + count]
                at += count
            found[name] = list(array(COLUMNS[name], bytes(plain)))
        return found
