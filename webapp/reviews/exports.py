"""A trajectory as JSON, or as rows of Parquet, a piece at a time: none is ever in memory whole."""

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.records import json_line
from engine.records.stored import StoredTrajectory
from engine.records.trained import COLUMNS as TRAINED
from webapp.problems import RefusedError
from webapp.reviews import finding, reading, trained
from webapp.reviews.models import TrainedTokens, Trajectory

_AT_ONCE = 64
_GROUP_ROWS = 2_000
_GROUP_CHARS = 8_000_000
_HELD = 16 * 2**20  # bytes of a line that are held until the line is whole

# Columns of Parquet, one row a step: name -> Arrow type. docs/exports.md says what each holds.
COLUMNS = {
    "trajectory_id": "string", "run_id": "string", "attempt": "int32", "task_id": "string",
    "group_id": "string", "category": "string", "purpose": "string", "prompt": "string",
    "right_answer": "string", "success": "bool", "reward": "double", "stop_reason": "string",
    "worker": "string", "started_at": "timestamp[us, tz=UTC]", "problem": "string",
    "step": "int32", "segment": "int32", "text": "string", "tool": "string", "arguments": "string",
    "result": "string", "error": "string", "duration_s": "double", "answer": "string",
    "step_reward": "double", "detour": "bool", "token_ids": "list<int64>",
    "logprobs": "list<float>", "versions": "list<int32>", "trained": "list<bool>",
    "trained_step": "int64", "trained_version": "int32", "trained_left_out": "string",
    "trained_problem": "string", **{
        f"trained_{name}": "list<float>" if kind == "f" else "list<int8>"
        for name, kind in TRAINED.items()
    },
}  # fmt: skip


# Those that are known of a trajectory that cannot be read.
INDEX = (
    "trajectory_id", "run_id", "attempt", "task_id", "group_id", "category", "purpose", "prompt",
    "success", "reward", "stop_reason", "worker", "started_at",
)  # fmt: skip
# Worth a dictionary and bounds; of long texts both take longer than all the rest.
REPEATED = [
    name
    for name, kind in COLUMNS.items()
    if kind != "list<float>" and name not in ("text", "arguments", "result")
]


Exported = tuple[Trajectory, TrainedTokens | None]


@dataclass
class Told:
    """How many of the trajectories could not be read."""

    unreadable: int = 0


def pieces_of(rows: Iterable[Exported], format: str, told: Told | None = None) -> Iterator[bytes]:
    """The trajectories as "jsonl" or "parquet"."""
    told = told or Told()
    return parquet(rows, told) if format == "parquet" else json_lines(rows, told)


def json_lines(rows: Iterable[Exported], told: Told) -> Iterator[bytes]:
    """One line for each with all of it, keys as in `Trajectory.to_dict`; {"id", "problem"} for one
    that cannot be read. One that is too long to hold is sent as it is read: where it turns out to
    be damaged, its line has what came before, and the `problem`."""
    for row, record in rows:
        held, size, closing = list[bytes](), 0, b""
        try:
            with reading.stored(row, in_order=True) as source:
                pieces = _pieces(source, None if record is None else trained.whole(record))
                for piece, could_end in pieces:
                    held.append(piece)
                    size += len(piece)
                    if size > _HELD:
                        closing = could_end
                        yield b"".join(held)
                        held.clear()
                yield b"".join(held)
        except RefusedError as refused:
            told.unreadable += 1
            if closing:
                yield closing[:-1] + b', "problem": ' + _json(refused.detail) + b"}"
            else:
                yield _json({"id": row.pk, "problem": refused.detail})
        yield b"\n"


_pieces = finding.sound(json_line.pieces)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def parquet(rows: Iterable[Exported], told: Told) -> Iterator[bytes]:
    """A Parquet file of COLUMNS. A trajectory without steps, or that cannot be read, has one row,
    whose `problem` says why."""
    import pyarrow  # takes memory that a web process which exports nothing does not need
    import pyarrow.parquet

    schema = pyarrow.schema([(name, _arrow(pyarrow, kind)) for name, kind in COLUMNS.items()])
    out = _Buffer()
    options = {"compression": "zstd", "use_dictionary": REPEATED, "write_statistics": REPEATED}
    with pyarrow.parquet.ParquetWriter(out, schema, **options) as writer:
        for group in _groups(step for row, record in rows for step in steps_of(row, record, told)):
            writer.write_table(_table(pyarrow, group, schema))
            yield out.taken()
    yield out.taken()


def _table(pyarrow: Any, group: list[dict[str, Any]], schema: Any) -> Any:
    try:
        return pyarrow.Table.from_pylist(group, schema)
    except (ValueError, TypeError, OverflowError):
        fitting = [_fitting(pyarrow, row, schema) for row in group]
        return pyarrow.Table.from_pylist(fitting, schema)


def _fitting(pyarrow: Any, row: dict[str, Any], schema: Any) -> dict[str, Any]:
    """The row as Arrow takes it. Lone surrogates, which a stored escape can smuggle in, are no text
    to it; of what was no trajectory to begin with only the index is left."""
    row = {name: _text(value) if isinstance(value, str) else value for name, value in row.items()}
    try:
        pyarrow.Table.from_pylist([row], schema)
    except (ValueError, TypeError, OverflowError) as error:
        kept = {name: row[name] for name in INDEX}
        return dict.fromkeys(COLUMNS) | kept | {"problem": f"It is no trajectory: {error}"}
    return row


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


class _Buffer(io.RawIOBase):
    """What Arrow has written since it was last taken. It remembers how much that was before."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._size += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._size

    def taken(self) -> bytes:
        found = b"".join(self._parts)
        self._parts.clear()
        return found


def _arrow(pyarrow: Any, kind: str) -> Any:
    if kind.startswith("list<"):
        return pyarrow.list_(_arrow(pyarrow, kind[5:-1]))
    if kind.startswith("timestamp"):
        return pyarrow.timestamp("us", tz="UTC")
    return {"bool": pyarrow.bool_(), "float": pyarrow.float32(), "double": pyarrow.float64()}.get(
        kind
    ) or pyarrow.type_for_alias(kind)


def _groups(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group, size = list[dict[str, Any]](), 0
    for row in rows:
        group.append(row)
        size += 100 + sum(len(row[name] or "") for name in ("prompt", "text", "result"))
        size += len(row["arguments"] or "") + 8 * len(row["token_ids"] or ())
        if len(group) == _GROUP_ROWS or size > _GROUP_CHARS:
            yield group
            group, size = [], 0
    if group:
        yield group


def steps_of(row: Trajectory, record: TrainedTokens | None, told: Told) -> Iterator[dict[str, Any]]:
    """Rows of COLUMNS, one for each step."""
    whole = dict.fromkeys(COLUMNS) | {
        "trajectory_id": row.pk,
        "run_id": row.run_id,
        "attempt": row.attempt.number,
        "problem": "",
        **{name: getattr(row, name) for name in INDEX[3:]},
    }
    try:
        with reading.stored(row, in_order=True) as source:
            for step in _seen(record, _steps(source)):
                yield whole | step
            if not source.step_count:
                yield whole | {"problem": "It has no steps."}
    except RefusedError as refused:
        told.unreadable += 1
        yield whole | {"problem": refused.detail}


def _seen(
    record: TrainedTokens | None, steps: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The steps with what training saw of their tokens; nothing more where it saw none of them."""
    if record is None:
        yield from steps
        return
    about: dict[str, Any] = {
        "trained_step": record.step,
        "trained_version": record.version,
        "trained_left_out": record.left_out,
    }
    source = None
    for step in steps:
        start, stop = step["start"], step["start"] + len(step["token_ids"])
        try:
            with trained.refusing(record):
                source = source or trained.opened(record)
                part = source.part(step["segment"], start, stop)
            yield step | about | {f"trained_{name}": part[name] for name in part}
        except RefusedError as refused:
            yield step | about | {"trained_problem": refused.detail}


@finding.sound
def _steps(source: StoredTrajectory) -> Iterator[dict[str, Any]]:
    task = {"prompt": str(source.fields["prompt"]), "right_answer": str(source.fields["answer"])}
    for first in range(0, source.step_count, _AT_ONCE):
        for step in source.steps(first, _AT_ONCE):
            yield task | _step(source, step)


def _step(source: StoredTrajectory, step: dict[str, Any]) -> dict[str, Any]:
    call = step["call"] or {}
    tokens = source.tokens(step["segment"], step["start"], step["stop"])
    has = {name: bool(call) and call.get(name) is not None for name in ("arguments", "result")}
    return {
        "step": step["index"],
        "segment": step["segment"],
        "start": step["start"],
        "text": finding.field(source, step, "text"),
        "tool": call.get("name"),
        "arguments": finding.field(source, step, "arguments") if has["arguments"] else None,
        "result": finding.field(source, step, "result") if has["result"] else None,
        "error": call.get("error"),
        "duration_s": call.get("duration_s"),
        "answer": finding.field(source, step, "answer") if step["answer"] is not None else None,
        "step_reward": step["reward"],
        "detour": step["detour"],
        "token_ids": tokens.ids,
        "logprobs": tokens.logprobs,
        "versions": tokens.versions,
        "trained": tokens.loss_mask,
    }
