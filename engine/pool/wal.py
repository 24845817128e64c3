"""The pool's write-ahead log on run storage: what was admitted survives a crash.

One object per append, named by epoch (the attempt that writes) and number; it counts whole or not
at all. A snapshot holds the whole state and makes everything before it superfluous, so that an
older attempt that still runs somewhere cannot touch the log of a newer one.
"""

import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from engine.durable import write_whole
from engine.pool.group import Group
from engine.pool.state import (
    Admitted,
    Committed,
    Discarded,
    Leased,
    PoolState,
    Published,
    Record,
    Refused,
    Returned,
)

Frame = tuple[dict[str, Any], bytes]  # facts, payload

_HEAD = struct.Struct(">QI")  # bytes after the head, their CRC-32
_FRAME = struct.Struct(">II")  # bytes of the facts, bytes of the payload
_SNAPSHOT = "snapshot"
_PLAIN: dict[str, type[Record]] = {
    kind.__name__: kind for kind in (Refused, Discarded, Leased, Committed, Returned, Published)
}


class Store(Protocol):
    """Where the log lies: whole objects, durable and complete once `put` has returned."""

    def put(self, name: str, data: bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def names(self) -> list[str]: ...
    def remove(self, name: str) -> None: ...


class FolderStore:
    """A store in a local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        write_whole(self._folder / name, data)

    def get(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def names(self) -> list[str]:
        found = [path.name for path in self._folder.iterdir() if path.suffix != ".partial"]
        return [name for name in found if not name.startswith(".")]  # as network folders leave

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


class WalDamagedError(Exception):
    """The log cannot be read, and not because its last write was cut short."""


class Wal:
    def __init__(self, store: Store, epoch: int) -> None:
        self._store = store
        self._epoch = epoch
        self._next = 1 + max((n for e, n in map(_key, store.names()) if e == epoch), default=0)

    def append(self, *records: Record) -> None:
        """Durable on return. Raises OSError when storage refuses."""
        self._put("wal", (_frame(record) for record in records))

    def compact(self, state: PoolState) -> None:
        """Write the state as it is, then drop what led to it."""
        facts = {
            "kind": _SNAPSHOT,
            "produced": state.produced,
            "consumed": state.consumed,
            "discarded": dict(state.discarded),
            "next_ticket": state.next_ticket,
            "unfinished": sorted(state.unfinished),
            "version": state.version,
        }
        leases = [Leased(s, tuple(g.ticket for g in groups)) for s, groups in state.leased.items()]
        groups = chain(state.waiting.values(), *state.leased.values())
        records: list[Record] = [*map(Admitted, groups), *leases]
        name = self._put(_SNAPSHOT, [_frame_bytes(facts, b""), *map(_frame, records)])
        for older in self._store.names():
            if _key(older) < _key(name):
                self._store.remove(older)

    def recover(self, committed_step: int) -> PoolState:
        """The pool after a crash, where the newest complete checkpoint covers `committed_step`.

        What was trained on up to that step is consumed; everything else that was admitted waits.
        The write that a crash cut short is ignored; damage before it raises WalDamagedError.
        """
        state = PoolState()
        logs: list[tuple[str, list[Frame] | None]] = []
        for name in sorted(self._store.names(), key=_key, reverse=True):
            frames = _frames(self._store.get(name))
            if not name.endswith(_SNAPSHOT):
                logs.append((name, frames))
            elif frames is not None:
                state = _read_snapshot(frames)
                break
        for name, frames in reversed(logs):
            if frames is None and name != logs[0][0]:
                raise WalDamagedError(
                    f"The pool's log is damaged in {name}. Remove its folder to go on "
                    "without the trajectories that wait in it."
                )
            for frame in frames or ():
                state.apply(_record(frame))
        state.apply(Committed(committed_step))
        state.apply(Returned(committed_step))
        return state

    def _put(self, kind: str, frames: Iterable[bytes]) -> str:
        name = f"{self._epoch:06d}.{self._next:012d}.{kind}"
        self._next += 1
        body = b"".join(frames)
        self._store.put(name, _HEAD.pack(len(body), zlib.crc32(body)) + body)
        return name


def _key(name: str) -> tuple[int, int]:
    epoch, number, _ = name.split(".")
    return int(epoch), int(number)


def _frame(record: Record) -> bytes:
    kind = type(record).__name__
    if isinstance(record, Admitted):
        return _frame_bytes({"kind": kind, **record.group.facts()}, record.group.payload)
    return _frame_bytes({"kind": kind, **vars(record)}, b"")


def _frame_bytes(facts: dict[str, Any], payload: bytes) -> bytes:
    text = json.dumps(facts).encode()
    return _FRAME.pack(len(text), len(payload)) + text + payload


def _frames(data: bytes) -> list[Frame] | None:
    """The frames of an object, None where it is not whole."""
    body = data[_HEAD.size :]
    if len(data) < _HEAD.size or _HEAD.unpack_from(data) != (len(body), zlib.crc32(body)):
        return None
    frames: list[Frame] = []
    at = 0
    while at < len(body):
        text_size, payload_size = _FRAME.unpack_from(body, at)
        start, middle = at + _FRAME.size, at + _FRAME.size + text_size
        at = middle + payload_size
        frames.append((json.loads(body[start:middle]), body[middle:at]))
    return frames


def _record(frame: Frame) -> Record:
    facts, payload = dict(frame[0]), frame[1]
    kind = facts.pop("kind")
    if kind == Admitted.__name__:
        return Admitted(Group.from_facts(facts, payload))
    if "tickets" in facts:
        facts["tickets"] = tuple(facts["tickets"])
    return _PLAIN[kind](**facts)


def _read_snapshot(frames: list[Frame]) -> PoolState:
    facts = {key: value for key, value in frames[0][0].items() if key != "kind"}
    facts["discarded"] = Counter(facts["discarded"])
    facts["unfinished"] = set(facts.get("unfinished", ()))  # format 2 has none
    state = PoolState(**facts)
    for frame in frames[1:]:
        record = _record(frame)
        if isinstance(record, Admitted):
            state.waiting[record.group.ticket] = record.group
        else:
            state.apply(record)
    return state
